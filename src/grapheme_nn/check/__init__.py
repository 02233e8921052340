"""The corridor of proofs: gradients are right, the loss falls, the same gives the same, and the threshold learns."""

from grapheme_nn.check.numerical import Compared, GradientCheck, check_gradients
from grapheme_nn.check.parameters import GradientReport, ParameterReport, gradient_report

__all__ = ["Compared", "GradientCheck", "GradientReport", "ParameterReport", "check_gradients", "gradient_report"]
