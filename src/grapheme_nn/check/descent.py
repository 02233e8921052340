"""`check descent`: full-batch training loss falls at every step, and the trained network gives the right texts."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from random import Random

import torch

from grapheme_nn.check.learning import count_right, learn
from grapheme_nn.check.nets import PAIRS, small_net
from grapheme_nn.check.plot import sparkline
from grapheme_nn.check.table import Figure, Row
from grapheme_nn.config import ModelConfig, TrainConfig
from grapheme_nn.data import Pair, generate
from grapheme_nn.data.examples import Examples, choose_parts, labels_in
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.registry import OBJECTIVES
from grapheme_nn.trainer import Trainer

SEEDS, EPOCHS, MOST_EPOCHS, RATE = 20, 20, 200, 0.02
LONG, LONG_RATE = 150, 0.01  # epochs and rate of the longer runs
STEPS, STEP_RATE = 60, 3e-3  # of training as shipped
RIGHT = 0.9  # of the texts, after the longer runs


def rows() -> Iterator[Row]:
    """`abc->ab, xyz->xy, 123->12` from 20 seeds, and as `train` does it; `qa` and `arithmetic`, for 150 epochs."""
    for loss in ("monotone", "structural"):
        for seed in range(SEEDS):
            yield falling(seed, loss)
    for loss, morphs in (("monotone", ("split",)), ("structural", ("merge", "lift", "split"))):
        yield training(loss, morphs)
    yield converging("qa", generate("qa", 10, seed=0))
    yield converging("arithmetic, level 1", generate("arithmetic", 100, seed=0, level=1))


def falling(seed: int, loss: str = "monotone") -> Row:
    """20 full-batch epochs of plain gradient descent at a rate of 0.02: no momentum, no schedule, no clipping.

    So the step is the gradient itself, and a right gradient must lower the loss at each of them, and move every weight.
    The network is the library's, with a merging level, in which decisions are made as in training. Then it goes on
    until the three targets come out as text, 200 epochs at most.
    """
    net = small_net(PAIRS, seed=seed, loss=loss, width=32, hidden=16, buckets=64, parts=1)
    began = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    epochs = learn(net, PAIRS, torch.optim.SGD(net.parameters(), lr=RATE))
    losses = list(islice(epochs, EPOCHS + 1))  # the last of them tells what the last step did
    rises = sum(not after < before for before, after in pairwise(losses))
    still = [name for name, parameter in net.named_parameters() if torch.equal(parameter, began[name])]
    epoch, right = EPOCHS, count_right(net, PAIRS)
    while right < len(PAIRS) and epoch < MOST_EPOCHS:
        next(epochs)
        epoch, right = epoch + 1, count_right(net, PAIRS)
    notes = [f"the loss did not fall at {rises} of {EPOCHS} steps"] if rises else []
    notes += [f"{', '.join(still)} did not move"] if still else []
    if right < len(PAIRS):
        notes.append(f"after {epoch} epochs {len(PAIRS) - right} of {len(PAIRS)} texts are wrong")
    figures: dict[str, Figure] = {
        "rises": rises,
        "first loss": losses[0],
        "after 20": losses[-1],
        "right after": epoch,
        "loss": sparkline(losses),
    }
    return Row("descent", f"{loss}, merging", f"seed {seed}", not notes, figures, " and ".join(notes))


def training(loss: str, morphs: tuple[str, ...]) -> Row:
    """The library's own training as shipped, on the same pairs: the loss falls below half, the texts come out."""
    trainer = Trainer(PAIRS, PAIRS, TrainConfig(loss=loss, morphs=morphs))
    losses = []
    for step in range(STEPS):
        total, counted = trainer.step([[0, 1, 2]], STEP_RATE, Random(step))
        losses.append(total / max(counted, 1))
    name = f"as shipped, {loss}{', merging' if 'merge' in morphs else ''}"
    return _fell(name, losses, count_right(trainer.network, PAIRS), len(PAIRS))


def converging(name: str, pairs: Sequence[Pair], *, seed: int = 0) -> Row:
    """150 epochs of Adam at 0.01, clipped: the mean loss of the last tenth is below half of the first.

    And 90% of the texts are right, without which a falling loss means little. The network is as one gets it, without
    merging, but smaller and without dropout.
    """
    examples = Examples.of(pairs, "codepoint", "codepoint", with_features=False)
    parts = choose_parts(examples.needed_parts(OBJECTIVES["monotone"]()))
    shape = {"width": 64, "hidden": 48, "heads": 2, "layers": 1, "buckets": 64}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        labels = labels_in((pair.target for pair in pairs), "codepoint")
        net = GraphTransformNet(ModelConfig(labels, parts=parts, dropout=0.0, **shape))  # type: ignore[arg-type]
    losses = list(islice(learn(net, pairs, torch.optim.Adam(net.parameters(), lr=LONG_RATE), clip=True), LONG))
    return _fell(f"{name}, {LONG} epochs", losses, count_right(net, pairs), len(pairs))


def _fell(name: str, losses: list[float], right: int, texts: int) -> Row:
    tenth = len(losses) // 10
    last = sum(losses[-tenth:]) / tenth
    passed = last < losses[0] / 2 and right >= RIGHT * texts
    note = (
        f"the loss went from {losses[0]:.3g} to {last:.3g} (to be below half), and {right} of {texts} texts are right "
        f"(to be {RIGHT:.0%})"
    )
    figures: dict[str, Figure] = {
        "first loss": losses[0],
        "last tenth": last,
        "texts right": f"{right}/{texts}",
        "loss": sparkline(losses),
    }
    return Row("descent", name, "", passed, figures, "" if passed else note)
