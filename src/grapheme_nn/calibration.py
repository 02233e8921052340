"""Platt scaling: scores become as high as outputs are often right; and how far off they are."""

from collections.abc import Sequence
from math import exp, expm1, log
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

FEWEST = 20  # outputs that it can be fitted on
BINS = 10


class Calibration(NamedTuple):
    r"""What makes a score of a probability p (Platt, 1999).

    .. math:: \operatorname{score} = \sigma(\text{slope} \cdot \operatorname{logit} p + \text{offset})

    The slope is above 0, so that the order of outputs stays; with 1 and 0 the score is p.
    """

    slope: float = 1.0
    offset: float = 0.0

    def score(self, log_probability: float) -> float:
        """The score of an output, in (0, 1)."""
        return 1 / (1 + exp(-self.slope * _logit(log_probability) - self.offset))

    def scores(self, log_probabilities: Sequence[float]) -> list[float]:
        """The scores of several outputs of one input, the most probable first: together at most 1.

        The others share what the score of the first leaves over, as their probabilities are, but are not nearer to the
        first than those are to its probability.
        """
        first, *others = log_probabilities
        top = self.score(first)
        share = min((1 - top) / -expm1(min(first, -1e-12)), top * exp(-max(first, -700.0)))
        return [top, *(share * exp(value) for value in others)]


def fit_calibration(scores: Sequence[float], right: Sequence[bool]) -> Calibration:
    """The likeliest, from probabilities of outputs and whether each is right; p as it is where there are too few.

    Weak normal priors on log slope and offset keep both near 0 where almost all or almost nothing is right.
    """
    if len(scores) < FEWEST:
        return Calibration()
    logits = np.array([_logit(log(max(score, 1e-300))) for score in scores])
    sign = np.where(right, 1.0, -1.0)

    def cost(parameters: "np.typing.NDArray[np.float64]") -> float:
        log_slope, offset = parameters
        margin = sign * (np.exp(log_slope) * logits + offset)
        return float(np.logaddexp(0, -margin).sum() + log_slope**2 / 8 + offset**2 / 50)

    log_slope, offset = minimize(cost, np.zeros(2)).x
    return Calibration(float(np.exp(log_slope)), float(offset))


def calibration_error(scores: Sequence[float], right: Sequence[bool]) -> float:
    """The expected calibration error (Guo et al., 2017): how far mean score and share of right ones are apart in ten
    bins of equal width, weighed by how many outputs each has."""
    score, correct = np.array(scores, dtype=float), np.array(right, dtype=float)
    bins = np.minimum((score * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=score - correct, minlength=BINS)
    return float(np.abs(gaps).sum() / max(score.size, 1))


def _logit(log_probability: float) -> float:
    """log(p / (1 - p)), of p kept away from 0 and 1."""
    log_p = min(max(log_probability, -69.0), -1e-12)
    return log_p - log(-expm1(log_p))
