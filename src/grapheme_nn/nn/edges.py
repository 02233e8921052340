"""Prediction of edges between slots: pointers, or independent edges, to slots of nodes near by or of all nodes."""

from dataclasses import replace
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

    Candidates are slots of nodes at most `config.hops` edges apart in the graph that was split, so that cost grows with
    its edges and a rule holds in graphs of any size; where hops are 0, and where that graph is a chain, such as text,
    all pairs of slots.

    config: of the network; `config.edges` says what the scores are normalised over, see `CandidateEdges`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind, self.hops, self.inner = config.edges, config.hops, config.width // 2
        self.input_types = len(config.edge_types)
        self.pointers = len(config.target_edge_types) + (1 if self.kind == "operands" else 0)
        self.query = nn.Linear(config.width, self.pointers * self.inner)
        self.key = nn.Linear(config.width, self.inner, bias=False)
        relations = max(num_relations(self.input_types, self.hops), 1 + 2 * FARTHEST)
        self.relation = nn.Embedding(relations, self.inner)
        self.keep = nn.Parameter(torch.empty(())) if self.kind in PAIRWISE else None
        nones = {"operands": self.pointers, "consumer": 1}.get(self.kind)
        self.none = nn.Linear(config.width, nones) if nones else None  # pairwise edges have a constant in its place
        self.register_buffer("is_input_edge", self._input_edges(config), persistent=False)
        self.is_input_edge: Tensor
        self.register_buffer("type_ids", torch.tensor(type_identities(config.target_edge_types)), persistent=False)
        self.type_ids: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in (self.query, self.key, self.none):
            if linear is not None:
                linear.reset_parameters()
        nn.init.normal_(self.relation.weight, std=self.inner**-0.5)
        if self.keep is not None:
            nn.init.constant_(self.keep, KEEP)

    def _input_edges(self, config: ModelConfig) -> Tensor:
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
        pairs = chain_pairs(base) if base.is_chain else node_pairs(base, self.input_types, self.hops)
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
            chunk = self._candidates(chosen, parts, query[node:last], key, own, node * parts).likely()
            chunks.append(replace(chunk, first=chunk.first + node * parts))
            begin, node = end, last
        return CandidateEdges.joined(chunks)

    def _candidates(
        self, pairs: Pairs, parts: int, query: Tensor, key: Tensor, none: Tensor, offset: int = 0
    ) -> CandidateEdges:
        """The candidates of pairs whose first nodes are those of `query` and `none`: slot 0 of these is `offset`."""
        score = query[pairs.first] @ (key[pairs.second] + self.relation(pairs.relation)[:, None]).mT
        score = score.view(-1, parts, self.pointers, parts).transpose(2, 3)  # [p, slot of first, slot of second, types]
        place = torch.arange(parts, device=key.device)
        if self.keep is not None:
            corner = ((place[:, None] + place) == 0).to(score.dtype)[:, :, None]  # the first slots of both
            score = score + self.keep * corner * self.is_input_edge[pairs.relation].to(score.dtype)[:, None, None]
        first = (pairs.first[:, None] * parts + place)[:, :, None].expand(-1, -1, parts).flatten()
        second = (pairs.second[:, None] * parts + place)[:, None, :].expand(-1, parts, -1).flatten()
        other = (first + offset != second).nonzero()[:, 0]
        first, second, score = first[other], second[other], score.flatten(0, 2)[other]
        return CandidateEdges.of(self.kind, first, second, score, none, self.type_ids)


def num_steps(types: int) -> int:
    """How many kinds of step there are: along an edge of a type, known or not, or against it."""
    return 2 * (1 + types)


def num_relations(types: int, hops: int) -> int:
    """How many relations `node_pairs` tells apart: the node itself, one step, two steps, and any further distance."""
    steps = num_steps(types)
    return 1 + steps if hops == 1 else 1 + steps + steps**2 + max(hops - 2, hops == 0)


def chain_pairs(graph: Morph) -> Pairs:
    """All pairs of nodes of chains, by how many places they are apart."""
    pairs = _all_pairs(graph)
    return pairs._replace(relation=(pairs.second - pairs.first).clamp(-FARTHEST, FARTHEST) + FARTHEST)


def node_pairs(graph: Morph, types: int, hops: int) -> Pairs:
    """The pairs of nodes at most so many edges apart, each once, by the shortest way between them; 0: all pairs.

    A relation is the types and directions of one or two steps, of more steps their number alone.
    """
    if hops == 0:
        pairs, near = _all_pairs(graph), node_pairs(graph, types, 2)
        place = torch.searchsorted(
            pairs.first * graph.num_nodes + pairs.second, near.first * graph.num_nodes + near.second
        )
        farther = torch.full_like(pairs.first, num_relations(types, 2))
        return pairs._replace(relation=farther.index_copy(0, place, near.relation))
    n, device, steps = graph.num_nodes, graph.device, num_steps(types)
    node = torch.arange(n, device=device)
    source, target = graph.structure_edges
    kind = graph.structure_types
    kind = torch.zeros_like(source) if kind is None else kind
    here, there = torch.cat([target, source]), torch.cat([source, target])
    step = torch.cat([kind, kind + 1 + types])  # to an operand, to a consumer
    order = here.argsort(stable=True)
    here, there, step = here[order], there[order], step[order]
    degree = torch.bincount(here, minlength=n)
    begin, leads_on = degree.cumsum(0) - degree, torch.where(degree <= MOST_NEIGHBOURS, degree, 0)
    ways = [Pairs(node, node, torch.zeros_like(node)), Pairs(here, there, 1 + step)]
    for hop in range(2, hops + 1):
        before = ways[-1] if hop == 2 else _shortest(ways, n)
        onward = leads_on[before.second]
        way = torch.arange(onward.numel(), device=device).repeat_interleave(onward)
        edge = begin[before.second[way]] + torch.arange(way.numel(), device=device) - (onward.cumsum(0) - onward)[way]
        relation = 1 + steps * before.relation[way] + step[edge]
        if hop > 2:
            relation = torch.full_like(way, num_relations(types, 2) + hop - 3)
        ways.append(Pairs(before.first[way], there[edge], relation))
    return _shortest(ways, n)


def _shortest(ways: list[Pairs], n: int) -> Pairs:
    """Each pair once, sorted, by the lowest of its relations: shorter ways have lower ones."""
    first, second, relation = (torch.cat(parts) for parts in zip(*ways, strict=True))
    by_relation = relation.argsort(stable=True)
    pair = (first * n + second)[by_relation]
    by_pair = pair.argsort(stable=True)
    pair, chosen = pair[by_pair], by_relation[by_pair]
    is_first = torch.ones_like(pair, dtype=torch.bool)
    is_first[1:] = pair[1:] != pair[:-1]
    chosen = chosen[is_first]
    return Pairs(first[chosen], second[chosen], relation[chosen])


def _all_pairs(graph: Morph) -> Pairs:
    """All pairs of nodes of one graph, sorted, without a relation."""
    number = graph.padding.dense(torch.arange(graph.num_nodes, device=graph.device))
    there = graph.padding.mask[:, :, None] & graph.padding.mask[:, None, :]
    first, second = number[:, :, None].expand_as(there)[there], number[:, None, :].expand_as(there)[there]
    order = (first * graph.num_nodes + second).argsort()
    return Pairs(first[order], second[order], torch.zeros_like(first))


def edge_predictor(config: ModelConfig) -> nn.Module:
    """What predicts the edges of a network's slots."""
    if config.input_unit != "graph" and config.edges == "consumer":
        return NearestConsumer(config)
    return EdgePredictor(config)
