"""Splits of pairs: dev pairs held out by input, and batches of similar length."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import compress
from math import inf
from operator import not_
from random import Random

from grapheme_nn.data.graphs import Graph
from grapheme_nn.data.pairs import Pair

# How many batches are sorted together: enough for similar lengths, few enough for batches new in every epoch.
SORTED_TOGETHER = 32
# Of fewer pairs than these nothing is held out: a tenth would be too few to judge by, and missed where they are.
FEWEST = 50


def overlap(train: Sequence[Pair], dev: Sequence[Pair]) -> int:
    """How many pairs of `dev` ask what `train` has answered: the same input with the same features."""
    seen = {(input_key(pair.input), pair.features) for pair in train}
    return sum((input_key(pair.input), pair.features) in seen for pair in dev)


def hold_out(pairs: Sequence[Pair], share: float = 0.1, *, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Two lists, the second with about a `share` of the pairs, such that no input occurs in both.

    Graphs with the same nodes and edges are the same input, in whatever order the edges stand.
    Pairs with the same input stay together whatever their features, so the share is met as nearly as that allows,
    from below where possible. Both lists keep the order of `pairs`, and neither is empty.

    Of fewer than 50 pairs nothing is held out: both lists are all pairs, as `len(train) == len(pairs)` tells, and a
    figure of the second says how well the pairs were learned, not how well others will do.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must lie between 0 and 1, but is {share}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, but is {seed}: Python draws the same with {-seed}")
    if 0 < len(pairs) < FEWEST:
        return list(pairs), list(pairs)
    keys = [input_key(pair.input) for pair in pairs]
    sizes: defaultdict[Hashable, int] = defaultdict(int)
    for key in keys:
        sizes[key] += 1
    if len(sizes) < 2:
        raise ValueError(f"cannot hold out a part of {len(sizes)} different inputs: give at least 2")
    wanted = max(1, round(share * len(pairs)))
    inputs = list(sizes)
    Random(seed).shuffle(inputs)
    held: set[Hashable] = set()
    taken = 0
    for key in inputs:
        if taken + sizes[key] <= min(wanted, len(pairs) - 1):
            held.add(key)
            taken += sizes[key]
    if not held:
        held.add(min(inputs, key=sizes.__getitem__))
    chosen = [key in held for key in keys]
    return list(compress(pairs, map(not_, chosen))), list(compress(pairs, chosen))


def length_batches(
    lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int = 0, most: float = inf
) -> list[list[int]]:
    """Batches of indices into `lengths`, each index once, similar lengths together, in an order made by chance.

    The indices are shuffled, sorted by length within chunks of some batches, cut, and the batches shuffled. A batch is
    as long as its longest, times `batch_size`, as far as that is at most `most`; or it is one index alone. The same
    seed and epoch give the same batches. O(n log b) for b indices in a chunk.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, but is {batch_size}")
    # A string is hashed, so that seed 1 in epoch 2 has nothing to do with seed 2 in epoch 1.
    random = Random(f"{seed} {epoch}")
    order = list(range(len(lengths)))
    random.shuffle(order)
    chunk = batch_size * SORTED_TOGETHER
    batches: list[list[int]] = []
    for start in range(0, len(order), chunk):
        batch: list[int] = []
        for index in sorted(order[start : start + chunk], key=lengths.__getitem__):
            if len(batch) == batch_size or (batch and (len(batch) + 1) * lengths[index] > most):
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
    random.shuffle(batches)
    return batches


def input_key(side: str | Graph) -> Hashable:
    """What two inputs have in common where they are the same."""
    return (side.nodes, frozenset(side.edges), side.directed) if isinstance(side, Graph) else side
