"""Numerical proof: gradients against finite differences, descent, determinism, and a threshold that learns."""

from grapheme_nn.check.numerical import Compared, GradientCheck, check_gradients
from grapheme_nn.check.parameters import GradientReport, ParameterReport, gradient_report

__all__ = ["Compared", "GradientCheck", "GradientReport", "ParameterReport", "check_gradients", "gradient_report"]
