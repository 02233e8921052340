"""Scores become as high as outputs are often right."""

from random import Random

import pytest

from grapheme_nn.calibration import calibration_error, fit_power


def outputs(power, count, seed=0):
    """Scores, and whether each output is right, which it is with probability score^power."""
    random = Random(seed)
    scores = [1 - random.random() ** 4 for _ in range(count)]
    return scores, [random.random() < score**power for score in scores]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 4.0])
def test_the_power_that_made_the_outputs_right_is_found(power):
    scores, right = outputs(power, 20_000)
    assert fit_power(scores, right) == pytest.approx(power, rel=0.1)


def test_the_error_falls_where_scores_were_too_high():
    scores, right = outputs(3.0, 1_000)
    power = fit_power(scores, right)
    others, really = outputs(3.0, 5_000, seed=1)
    assert calibration_error(others, really) > 0.08
    assert calibration_error([score**power for score in others], really) < 0.02


def test_a_few_outputs_or_none_wrong_change_little():
    assert fit_power([0.5] * 19, [True] * 19) == 1.0
    assert 0.01 < fit_power([0.99] * 60, [True] * 60) <= 1.0
    assert 1.0 <= fit_power([1.0] * 60, [False] * 60) < 3000


def test_the_error_is_that_of_bins_by_hand():
    assert calibration_error([0.95, 0.95, 0.35, 0.31], [True, False, False, False]) == pytest.approx((0.9 + 0.66) / 4)
    assert calibration_error([1.0, 1.0], [True, True]) == 0.0
