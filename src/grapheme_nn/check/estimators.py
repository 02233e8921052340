"""Cosine of each gradient estimator of `Merge` with the exact gradient, found by enumerating all merges."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from grapheme_nn.check.table import Figure, Row
from grapheme_nn.check.truth import Kind, Problem, expected_loss, random_problem
from grapheme_nn.morph import Merge
from grapheme_nn.morph.merge import Estimator

PROBLEMS = 12
SAMPLES = 16  # that gumbel is averaged over


@dataclass(frozen=True)
class Promise:
    """What an estimator holds on the mean over problems; docs/estimators.md has the figures of 50 problems each."""

    estimator: Estimator
    kind: Kind
    cosine: float  # at least, of the gradient in theta and x together
    signs: float  # at least, the share of problems on which theta's gradient has the right sign


PROMISES = (
    Promise("soft", "readout", 0.75, 0.75),
    Promise("straight_through", "readout", 0.65, 0.75),
    Promise("gumbel", "readout", 0.75, 0.75),
    Promise("soft", "lift", 0.6, 0.6),
    Promise("straight_through", "lift", 0.6, 0.6),
    Promise("gumbel", "lift", 0.7, 0.75),
)


def check_estimators() -> Iterator[Row]:
    """A row for each promise; the same problems for all."""
    truths = {}
    for promise in PROMISES:
        if promise.kind not in truths:
            truths[promise.kind] = [_truth(random_problem(seed, promise.kind)) for seed in range(PROBLEMS)]
        torch.manual_seed(0)
        cosines, right = [], 0
        for problem, truth in truths[promise.kind]:
            found = _estimate(problem, promise.estimator)
            cosines.append(float(torch.cosine_similarity(found, truth, dim=0)))
            right += bool(found[0] * truth[0] > 0)
        yield _row(promise, sum(cosines) / PROBLEMS, right)


def _row(promise: Promise, cosine: float, right: int) -> Row:
    name = f"truth, {promise.estimator}, {promise.kind}"
    passed = cosine >= promise.cosine and right >= promise.signs * PROBLEMS
    note = (
        f"its cosine with the truth is {cosine:.2f} (at least {promise.cosine}), and the sign of theta's gradient is "
        f"right on {right} of {PROBLEMS} problems (at least {promise.signs:.0%})"
    )
    figures: dict[str, Figure] = {"cosine": cosine, "at least": promise.cosine, "theta's sign": f"{right}/{PROBLEMS}"}
    return Row("gradients", name, "", passed, figures, "" if passed else note)


def _truth(problem: Problem) -> tuple[Problem, Tensor]:
    merge = Merge(0.5, temperature=0.2).double()
    return problem, _gradient(expected_loss(merge, problem.loss, problem.x, problem.edge_index), merge, problem.x)


def _estimate(problem: Problem, estimator: Estimator) -> Tensor:
    merge = Merge(0.5, temperature=0.2, estimator=estimator).double()
    samples = SAMPLES if estimator == "gumbel" else 1
    losses = [problem.loss(merge(problem.x, problem.edge_index)) for _ in range(samples)]
    return _gradient(torch.stack(losses).mean(), merge, problem.x)


def _gradient(value: Tensor, merge: Merge, x: Tensor) -> Tensor:
    """In theta first, then in x."""
    theta, features = torch.autograd.grad(value, (merge.theta, x), allow_unused=True, materialize_grads=True)
    return torch.cat([theta.reshape(1), features.flatten()])
