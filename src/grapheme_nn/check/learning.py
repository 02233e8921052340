"""Plain full-batch training on a few pairs: one optimiser step an epoch, so that nothing hides the gradient."""

from collections.abc import Iterator, Sequence

import torch
from torch.optim import Optimizer

from grapheme_nn.check.parameters import batch_of, net_loss
from grapheme_nn.data import Pair
from grapheme_nn.model import GraphTransformNet

CLIP = 1.0  # the largest norm of a step's gradient, where it is clipped: as in training


def learn(
    net: GraphTransformNet, pairs: Sequence[Pair], optimiser: Optimizer, *, clip: bool = False
) -> Iterator[float]:
    """Epoch after epoch, for as long as one asks: the loss before each step. One step an epoch, over all pairs."""
    batch = batch_of(net, pairs)
    while True:
        net.train()
        optimiser.zero_grad()
        loss = net_loss(net, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        yield loss.item()
        optimiser.step()


def count_right(net: GraphTransformNet, pairs: Sequence[Pair]) -> int:
    """How many targets come out as text."""
    outputs = net.transform([pair.input for pair in pairs])
    return sum(output == pair.target for output, pair in zip(outputs, pairs, strict=True))
