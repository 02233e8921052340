"""Calibration of scores: a power that makes them as high as outputs are often right, and how far off they are."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

FEWEST = 20  # outputs that a power can be fitted on
BINS = 10


def fit_power(scores: Sequence[float], right: Sequence[bool]) -> float:
    r"""The power k for which score^k is the likeliest probability of being right; 1 where there is too little to tell.

    .. math:: \max_k \sum_{i \text{ right}} k \log p_i + \sum_{i \text{ wrong}} \log(1 - p_i^k) - (\log k)^2 / 8

    As Platt scaling (Platt, 1999), with one parameter, which keeps the order of scores and 1 where it is. The last term
    keeps k near 1 where almost nothing is wrong.
    """
    if len(scores) < FEWEST:
        return 1.0
    surprise = -np.log(np.clip(np.array(scores), 1e-30, 1 - 1e-9))  # [n], above 0
    correct = np.array(right, dtype=bool)

    def cost(log_power: float) -> float:
        scaled = np.exp(log_power) * surprise
        return float(scaled[correct].sum() - np.log(-np.expm1(-scaled[~correct])).sum() + log_power**2 / 8)

    return float(np.exp(minimize_scalar(cost, bounds=(-8, 8), method="bounded").x))


def calibration_error(scores: Sequence[float], right: Sequence[bool]) -> float:
    """The expected calibration error (Guo et al., 2017): how far mean score and share of right ones are apart in ten
    bins of equal width, weighed by how many outputs each has."""
    score, correct = np.array(scores, dtype=float), np.array(right, dtype=float)
    bins = np.minimum((score * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=score - correct, minlength=BINS)
    return float(np.abs(gaps).sum() / max(score.size, 1))
