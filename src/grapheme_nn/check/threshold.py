"""`check threshold`: over 100 epochs the learnable threshold of `Merge` moves and settles, and the loss falls."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch

from grapheme_nn.check.learning import count_right, learn
from grapheme_nn.check.nets import merge_of, small_net
from grapheme_nn.check.plot import sparkline
from grapheme_nn.check.table import Figure, Row
from grapheme_nn.data import Pair
from grapheme_nn.morph import Morph

EPOCHS, RATE, SEEDS = 100, 0.01, 5
MOVES = 0.005  # at least, between its lowest and its highest
SETTLES = 0.07  # at most, as a share of that, in the last tenth of the epochs; where it only drifts, 0.09

# Words with some letters repeated, to be written without: what is alike and side by side belongs together.
STUTTERED = (
    Pair("aabccc", "abc"), Pair("bcca", "bca"), Pair("caaab", "cab"), Pair("acbb", "acb"),
    Pair("aabbab", "abab"), Pair("bcccbc", "bcbc"), Pair("ccaca", "caca"), Pair("ddab", "dab"),
    Pair("baadd", "bad"), Pair("cad", "cad"), Pair("dacc", "dac"), Pair("ccddb", "cdb"),
)  # fmt: skip


class Trajectory(NamedTuple):
    """What a threshold did, epoch by epoch."""

    threshold: list[float]
    merges: list[int]  # nodes that were merged away
    loss: list[float]
    right: int  # texts, at the end

    def curves(self) -> dict[str, list[float]]:
        return {"threshold": self.threshold, "merges": list(map(float, self.merges)), "loss": self.loss}

    def settling(self) -> float:
        """How far the threshold moved in the last tenth of the epochs, as a share of how far it moved in all."""
        return _range(self.threshold[-EPOCHS // 10 :]) / max(_range(self.threshold), 1e-9)


def run() -> Trajectory:
    """Of five networks, the one in the middle by how far its threshold has settled: one alone may just be startled."""
    return sorted(map(train, range(SEEDS)), key=Trajectory.settling)[SEEDS // 2]


def train(seed: int) -> Trajectory:
    """100 full-batch epochs of Adam at a constant rate of 0.01, with a merging level and the estimator as shipped."""
    net = small_net(STUTTERED, seed=seed, width=32, hidden=16, buckets=64, parts=1)
    merge = merge_of(net)
    merges: list[int] = []

    def count(module: object, arguments: object, morph: Morph) -> None:
        merges.append(morph.assignment.num_sources - morph.assignment.num_targets)

    hook = merge.register_forward_hook(count)
    threshold, loss = [], []
    for value in islice(learn(net, STUTTERED, torch.optim.Adam(net.parameters(), lr=RATE), clip=True), EPOCHS):
        loss.append(value)
        threshold.append(float(merge.threshold.detach()))
    hook.remove()
    return Trajectory(threshold, merges, loss, count_right(net, STUTTERED))


def rows(course: Trajectory) -> Iterator[Row]:
    """The loss ends below half of its start, and the texts come out; the threshold moves, and settles.

    It moves if its highest and its lowest are 0.005 apart or more, and settles if those of the last tenth of the epochs
    are no further apart than 7% of that.
    """
    moved, late = _range(course.threshold), _range(course.threshold[-EPOCHS // 10 :])
    stays = f"the threshold moved by {moved:.2g} in all, at least {MOVES} is wanted"
    restless = f"the threshold moved by {late:.2g} in the last tenth, at most {SETTLES:.0%} of {moved:.2g} is allowed"
    fell = course.loss[-1] < course.loss[0] / 2 and course.right == len(STUTTERED)
    high = (
        f"the loss went from {course.loss[0]:.3g} to {course.loss[-1]:.3g} (to be below half), and {course.right} of "
        f"{len(STUTTERED)} texts are right"
    )
    yield _row("loss", course.loss, "" if fell else high)
    yield _row(
        "threshold", course.threshold, stays if not moved >= MOVES else restless if course.settling() > SETTLES else ""
    )
    yield _row("nodes merged away", course.merges, "" if any(course.merges) else "nothing was ever merged")


def _row(name: str, values: list[float] | list[int], note: str) -> Row:
    figures: dict[str, Figure] = {
        "start": values[0],
        "end": values[-1],
        "range": _range(values),
        "last tenth": _range(values[-EPOCHS // 10 :]),
        f"{EPOCHS} epochs": sparkline(values),
    }
    return Row("threshold", name, "", not note, figures, note)


def _range(values: list[float] | list[int]) -> float:
    return max(values) - min(values)
