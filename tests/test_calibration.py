"""Scores become as high as outputs are often right."""

from math import exp, log
from random import Random

import pytest

from grapheme_nn.calibration import FEWEST, Calibration, calibration_error, fit_calibration


def outputs(calibration, count, seed=0):
    """Probabilities, most of them high, and whether each output is right, which the calibrated score tells how often."""
    random = Random(seed)
    given = [1 / (1 + exp(-random.gauss(3, 3))) for _ in range(count)]
    return given, [random.random() < calibration.score(log(p)) for p in given]


@pytest.mark.parametrize("truth", [Calibration(), Calibration(0.4, 0.0), Calibration(0.3, -1.0), Calibration(2.0, 1.0)])
def test_the_calibration_that_made_the_outputs_right_is_found(truth):
    found = fit_calibration(*outputs(truth, 20_000))
    assert found == pytest.approx(truth, rel=0.1, abs=0.1)


def test_as_it_is_a_score_is_the_probability_and_its_order_stays():
    given = [1e-9, 0.1, 0.5, 0.99, 1.0]
    assert [Calibration().score(log(p)) for p in given] == pytest.approx(given)
    scores = [Calibration(0.3, -1.0).score(log(p)) for p in given]
    assert scores == sorted(scores)
    assert 0 < Calibration(5.0).score(-1e30) < scores[0]


def test_the_error_falls_where_probabilities_were_too_high():
    truth = Calibration(0.25, -0.5)
    found = fit_calibration(*outputs(truth, 500))
    given, right = outputs(truth, 5_000, seed=1)
    assert calibration_error(given, right) > 0.15
    assert calibration_error([found.score(log(p)) for p in given], right) < 0.05


def test_a_few_outputs_change_nothing_and_none_right_makes_scores_low():
    assert fit_calibration([0.5] * (FEWEST - 1), [True] * (FEWEST - 1)) == Calibration()
    assert fit_calibration([0.9] * 60, [True] * 60).score(log(0.9)) > 0.95
    assert fit_calibration([1.0] * 60, [False] * 60).score(0.0) < 0.1


def test_the_error_is_that_of_bins_by_hand():
    assert calibration_error([0.95, 0.95, 0.35, 0.31], [True, False, False, False]) == pytest.approx((0.9 + 0.66) / 4)
    assert calibration_error([0.96, 0.86], [False, True]) == pytest.approx((0.96 + 0.14) / 2)  # two bins
    assert calibration_error([1.0, 1.0], [True, True]) == 0.0


def test_scores_of_several_outputs_share_what_the_first_leaves():
    assert Calibration().scores([log(0.5), log(0.3), log(0.1)]) == pytest.approx([0.5, 0.3, 0.1])
    scores = Calibration(0.3, 0.5).scores([log(0.6), log(0.2), log(0.1)])
    assert scores[0] == Calibration(0.3, 0.5).score(log(0.6))
    assert scores[1:] == pytest.approx([(1 - scores[0]) * 0.5, (1 - scores[0]) * 0.25])
    low = Calibration(1.0, -5.0).scores([log(0.6), log(0.3), log(0.1)])  # what is far from sure keeps its order
    assert low == pytest.approx([low[0], low[0] / 2, low[0] / 6])
    assert Calibration().scores([0.0]) == pytest.approx([1.0])
