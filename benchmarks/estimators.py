"""How far each estimator of Merge points where the enumerated truth does: the table of docs/estimators.md.

python benchmarks/estimators.py
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table

from grapheme_nn.check.truth import KINDS, expected_loss, random_problem
from grapheme_nn.morph import Merge


def gradient(value: torch.Tensor, merge: Merge, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    theta, features = torch.autograd.grad(value, (merge.theta, x), allow_unused=True)
    return torch.zeros(1).double() if theta is None else theta.reshape(1), features.flatten()


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.cosine_similarity(a, b, dim=0).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--samples", type=int, default=64, help="samples that gumbel is averaged over")
    options = parser.parse_args()
    torch.manual_seed(0)
    table = Table("loss", "estimator", "theta and x", "x alone", "theta: share of right signs")
    for kind in KINDS:
        problems = [random_problem(seed, kind) for seed in range(options.problems)]
        truths = []
        for problem in problems:
            merge = Merge(0.5, temperature=0.2).double()
            truths.append(gradient(expected_loss(merge, problem.loss, problem.x, problem.edge_index), merge, problem.x))
        for estimator in ("straight_through", "gumbel", "soft"):
            both, features, signs = [], [], []
            for problem, truth in zip(problems, truths, strict=True):
                merge = Merge(0.5, temperature=0.2, estimator=estimator).double()
                repeats = options.samples if estimator == "gumbel" else 1
                value = sum(problem.loss(merge(problem.x, problem.edge_index)) for _ in range(repeats))
                found = gradient(value, merge, problem.x)
                both.append(cosine(torch.cat(found), torch.cat(truth)))
                features.append(cosine(found[1], truth[1]))
                signs.append(float((found[0] * truth[0] > 0).item()))
            columns = (f"{sum(column) / len(column):.2f}" for column in (both, features, signs))
            table.add_row(kind, estimator, *columns)
    Console().print(table)


if __name__ == "__main__":
    main()
