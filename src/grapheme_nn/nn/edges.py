"""Prediction of edges between slots: pointers, or independent edges, to slots of nodes near by or of all nodes."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from grapheme_nn.candidates import NO_EDGE, PAIRWISE, CandidateEdges
from grapheme_nn.config import ModelConfig
from grapheme_nn.graph import type_identities
from grapheme_nn.morph.base import Morph, before_split
from grapheme_nn.nn.nearest import NearestConsumer

KEEP = NO_EDGE + 3.0  # by how much an edge of the input is more probable at first
FARTHEST = 16  # places along a chain: beyond, they are all the same distance
MOST_AT_ONCE = 1 << 17  # pairs of nodes, where nothing is learned
MOST_NEIGHBOURS = 32  # a node with more is no way from one of its neighbours to another: cost grows with the edges


class Pairs(NamedTuple):
    """Pairs of nodes whose slots may be linked, sorted by the first."""

    first: Tensor  # int64 [p]
    second: Tensor  # int64 [p]
    relation: Tensor  # int64 [p]: what the second is to the first


class EdgePredictor(nn.Module):
    r"""For each candidate pair of slots and each type of edge, how probable that edge is.

    .. math:: e_t(i, j) = q_t(x_i) \cdot (k(x_j) + r_{ij}) / \sqrt{d}

    r is an embedding of how the nodes that i and j were made from stand to each other: the same node, its operand of
    some type, an operand of its operand, and so on (relative keys: Shaw et al., 2018; pointers: Vinyals et al., 2015).
    Where edges are choices of pairs, one that the input has adds a learned number between first slots: at first what
    exists stays.

    Candidates are slots of nodes at most two edges apart in the graph that was split, so that cost grows with its edges
    and a rule holds in graphs of any size; where that graph is a chain, such as text, all pairs of slots.

    config: of the network; `config.edges` says what the scores are normalised over, see `CandidateEdges`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind, self.types, self.inner = config.edges, len(config.target_edge_types), config.width // 2
        self.input_types = len(config.edge_types)
        self.pointers = self.types + (1 if self.kind == "operands" else 0)
        self.query = nn.Linear(config.width, self.pointers * self.inner)
        self.key = nn.Linear(config.width, self.inner, bias=False)
        relations = max(1 + steps(self.input_types) * (1 + steps(self.input_types)), 1 + 2 * FARTHEST)
        self.relation = nn.Embedding(relations, self.inner)
        self.keep = nn.Parameter(torch.empty(())) if self.kind in PAIRWISE else None
        nones = {"operands": self.pointers, "consumer": 1}.get(self.kind)
        self.none = nn.Linear(config.width, nones) if nones else None  # of independent edges, 0
        self.register_buffer("kept", self._kept(config), persistent=False)
        self.kept: Tensor
        self.register_buffer("known", torch.tensor(type_identities(config.target_edge_types)), persistent=False)
        self.known: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in (self.query, self.key, self.none):
            if linear is not None:
                linear.reset_parameters()
        nn.init.normal_(self.relation.weight, std=self.inner**-0.5)
        if self.keep is not None:
            nn.init.constant_(self.keep, KEEP)

    def _kept(self, config: ModelConfig) -> Tensor:
        """1 where a relation is an edge of the input that has the type of a column, float [relations, columns]."""
        table = torch.zeros(self.relation.num_embeddings, self.pointers)
        if config.input_unit == "graph":
            for number, kind in enumerate(config.edge_types, 1):
                for column in (at for at, other in enumerate(config.target_edge_types) if other == kind):
                    table[1 + number + 1 + self.input_types, column] = 1
                    if self.kind == "undirected":
                        table[1 + number, column] = 1
        return table

    def forward(self, graph: Morph, x: Tensor) -> CandidateEdges:
        """The candidate edges of the slots of a graph with features x [B, s, d]."""
        base, parts = before_split(graph)
        pairs = all_pairs(base) if base.is_chain else near_pairs(base, self.input_types)
        slot = graph.padding.flat(x)
        query = self.query(slot).view(base.num_nodes, parts * self.pointers, self.inner) * self.inner**-0.5
        key = self.key(slot).view(base.num_nodes, parts, self.inner)
        none = slot[:, :0] if self.none is None else self.none(slot)
        if torch.is_grad_enabled() or pairs.first.numel() <= MOST_AT_ONCE:
            return self._candidates(pairs, parts, query, key, none)
        # So many nodes at a time that memory suffices; of each one's candidates only those that may be chosen stay.
        count = torch.bincount(pairs.first, minlength=base.num_nodes).cumsum(0)
        chunks, begin, node = [], 0, 0
        while node < base.num_nodes:
            last = max(int(torch.searchsorted(count, begin + MOST_AT_ONCE, right=True)), node + 1)
            end = int(count[last - 1])
            chosen = Pairs(pairs.first[begin:end] - node, pairs.second[begin:end], pairs.relation[begin:end])
            own = none[node * parts : last * parts]
            chunks.append(self._candidates(chosen, parts, query[node:last], key, own, node * parts).likely())
            begin, node = end, last
        return CandidateEdges.joined(chunks)

    def _candidates(
        self, pairs: Pairs, parts: int, query: Tensor, key: Tensor, none: Tensor, offset: int = 0
    ) -> CandidateEdges:
        """The candidates of pairs whose first nodes are those of `query` and `none`, which begin at slot `offset`."""
        score = query[pairs.first] @ (key[pairs.second] + self.relation(pairs.relation)[:, None]).mT
        score = score.view(-1, parts, self.pointers, parts).transpose(2, 3)  # [p, slot of first, slot of second, types]
        place = torch.arange(parts, device=key.device)
        if self.keep is not None:
            corner = ((place[:, None] + place) == 0).to(score.dtype)[:, :, None]  # the first slots of both
            score = score + self.keep * corner * self.kept[pairs.relation].to(score.dtype)[:, None, None]
        first = (pairs.first[:, None] * parts + place)[:, :, None].expand(-1, -1, parts).flatten()
        second = (pairs.second[:, None] * parts + place)[:, None, :].expand(-1, parts, -1).flatten()
        other = (first + offset != second).nonzero()[:, 0]
        first, second, score = first[other], second[other], score.flatten(0, 2)[other]
        return CandidateEdges.of(self.kind, first, second, score, none, self.known, offset)


def steps(types: int) -> int:
    """How many kinds of step there are: along an edge of a type, known or not, or against it."""
    return 2 * (1 + types)


def all_pairs(graph: Morph) -> Pairs:
    """All pairs of nodes of a chain, by how many places they are apart."""
    number = graph.padding.dense(torch.arange(graph.num_nodes, device=graph.device))
    there = graph.padding.mask[:, :, None] & graph.padding.mask[:, None, :]
    first, second = number[:, :, None].expand_as(there)[there], number[:, None, :].expand_as(there)[there]
    return Pairs(first, second, (second - first).clamp(-FARTHEST, FARTHEST) + FARTHEST)


def near_pairs(graph: Morph, types: int) -> Pairs:
    """The pairs of nodes at most two edges apart, each once, by the shortest way between them."""
    n, device = graph.num_nodes, graph.device
    node = torch.arange(n, device=device)
    source, target = graph.structure_edges
    kind = graph.structure_types
    kind = torch.zeros_like(source) if kind is None else kind
    here, there = torch.cat([target, source]), torch.cat([source, target])
    step = torch.cat([kind, kind + 1 + types])  # to an operand, to a consumer
    order = here.argsort(stable=True)
    here, there, step = here[order], there[order], step[order]
    degree = torch.bincount(here, minlength=n)
    begin = degree.cumsum(0) - degree
    # Two steps: from each step's end on, unless it is a hub.
    onward = torch.where(degree <= MOST_NEIGHBOURS, degree, 0)[there]
    first = torch.arange(here.numel(), device=device).repeat_interleave(onward)
    offset = torch.arange(first.numel(), device=device) - (onward.cumsum(0) - onward)[first]
    second = begin[there[first]] + offset
    one = torch.cat([node, here, here[first]])
    other = torch.cat([node, there, there[second]])
    code = torch.cat([torch.zeros_like(node), 1 + step, 1 + (1 + step[first]) * steps(types) + step[second]])
    # Shortest ways come first, of equals the lowest code, whatever the order of edges.
    by_code = code.argsort(stable=True)
    pair = (one * n + other)[by_code]
    by_pair = pair.argsort(stable=True)
    pair, chosen = pair[by_pair], by_code[by_pair]
    is_first = torch.ones_like(pair, dtype=torch.bool)
    is_first[1:] = pair[1:] != pair[:-1]
    chosen = chosen[is_first]
    return Pairs(one[chosen], other[chosen], code[chosen])


def edge_predictor(config: ModelConfig) -> nn.Module:
    """What predicts the edges of a network's slots."""
    if config.input_unit != "graph" and config.edges == "consumer":
        return NearestConsumer(config)
    return EdgePredictor(config)
