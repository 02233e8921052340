"""A walk around a tree, as a chain: so that a graph can be read out as a text."""

import torch
from torch import nn

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import check_counts
from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.operator import Operator

_PLACES = 8  # visits that are told apart; the eighth and all later ones look the same


class Tour(Operator):
    """Each node becomes its visits on a walk around the graph: before, between and after its operands, in order.

        x'[v] = x[node of v] + p[number of the visit] + q[number of operands left]
        S[i, v] = 1 where v is a visit of i

    The walk begins at nodes that nothing uses, of each graph one after the other, and takes operands by type, then by
    number (an Euler tour); of x * (y + z) it is * x * + y + z + *, so that any fixed way of writing a tree down, be it
    infix with brackets, Polish or nested calls, keeps its order. A node that is used twice is walked around when it is
    first met, and has one visit only from then on. The result is a chain. On the host, linear time.
    """

    acyclic = True

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_counts(channels=channels)
        self.channels = channels
        self.visit = nn.Embedding(_PLACES, channels)
        self.left = nn.Embedding(_PLACES, channels)

    def change(self, graph: Morph) -> Morph:
        node, visit, left = (torch.tensor(part, dtype=torch.long, device=graph.device) for part in _walk(graph))
        x = graph.x[node] + self.visit(visit.clamp(max=_PLACES - 1)) + self.left(left.clamp(max=_PLACES - 1))
        step = torch.arange(node.numel(), device=graph.device)
        owner = graph.owner[node]
        chain = (owner[1:] == owner[:-1]).nonzero()[:, 0] + 1
        edges = torch.stack([chain - 1, chain])
        same = Assignment(node, step, x.new_ones(node.numel()), graph.num_nodes, node.numel(), checked=False)
        unit = None if graph.unit is None else graph.unit[node]
        batch = None if graph.batch is None else owner
        return graph.changed(x, edges, x.new_ones(chain.numel()), batch, same, unit=unit)


def _walk(graph: Morph) -> tuple[list[int], list[int], list[int]]:
    """Of each step of the walk: the node, which visit of it this is, and how many operands are still to come."""
    edges, kind = graph.structure_edges, graph.structure_types
    source, target = edges.tolist()
    kinds = [0] * len(source) if kind is None else kind.tolist()
    operands: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    used = [False] * graph.num_nodes
    for _, child, parent in sorted(zip(kinds, source, target, strict=True)):
        operands[parent].append(child)
        used[child] = True
    met = [False] * graph.num_nodes
    steps: list[tuple[int, int, int]] = []
    for root in (number for number in graph.sequence.tolist() if not used[number]):
        stack = [(root, 0)]
        while stack:
            number, visit = stack.pop()
            below = operands[number]
            if visit == 0 and met[number]:
                steps.append((number, 0, 0))
                continue
            met[number] = True
            steps.append((number, visit, len(below) - visit))
            if visit < len(below):
                stack += [(number, visit + 1), (below[visit], 0)]
    node, visits, left = zip(*steps, strict=True) if steps else ((), (), ())
    return list(node), list(visits), list(left)
