"""Candidate edges between slots: their log-probabilities, and the choice of a DAG among them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from grapheme_nn.dag import levels
from grapheme_nn.sparse import strongest

EDGE_KINDS = ("operands", "consumer", "independent", "undirected")
PAIRWISE = ("independent", "undirected")  # kinds in which each pair is a choice of its own
NO_EDGE = 3.0  # the score of no edge in these: of all pairs, few are edges
LIKELY = log(0.1)  # the log-probability from which on a candidate is kept, where there are too many for memory


@dataclass(frozen=True, eq=False)
class CandidateEdges:
    """Edges that a predicted graph may have, each from one slot to another with a type, c pairs and T types.

        kind            pair (first, second) of type t         probabilities sum to 1 over
        operands        second is operand t of first           for each first and t: all seconds, and none
        consumer        first is operand t of second           for each first: all seconds and types, and none
        independent     an edge from first to second           for each pair: all types, and no edge
        undirected      an edge between them                   for each pair: all types, and no edge

    With `operands` there is one more column: where a slot is void, which one stands in for it (`forward`). So a node
    that goes away, such as the product in x * 1, hands its consumers on to what is left of it, and what points at it
    need not know how far away that is.
    """

    kind: str
    first: Tensor  # int64 [c]
    second: Tensor  # int64 [c]
    log_prob: Tensor  # [c, T], of `operands` [c, T + 1]
    none: Tensor  # log-probability of none: [slots, T + 1], [slots, 1] or [c, 1]
    types: Tensor  # int64 [T]: what the types are called in `edge_type` of data

    @classmethod
    def of(
        cls, kind: str, first: Tensor, second: Tensor, score: Tensor, none: Tensor, types: Tensor
    ) -> "CandidateEdges":
        """From scores [c, T'] of pairs and [slots, T' or 1] of none."""
        if kind in PAIRWISE:
            both = torch.cat([score, torch.full_like(score[:, :1], NO_EDGE)], 1).log_softmax(1)
            return cls(kind, first, second, both[:, :-1], both[:, -1:], types)
        flat, index = score, first
        if kind == "consumer":  # one normaliser for all types of a slot
            flat, index = score.reshape(-1, 1), first.repeat_interleave(score.size(1))
        highest = none.detach().scatter_reduce(0, index[:, None].expand_as(flat), flat.detach(), "amax")
        total = (none - highest).exp().index_add(0, index, (flat - highest[index]).exp())
        normaliser = highest + total.log()
        return cls(kind, first, second, score - normaliser[first], none - normaliser, types)

    @classmethod
    def joined(cls, parts: "Sequence[CandidateEdges]") -> "CandidateEdges":
        """Those of consecutive slots together."""
        columns = zip(*((part.first, part.second, part.log_prob, part.none) for part in parts), strict=True)
        first, second, log_prob, none = map(torch.cat, columns)
        return cls(parts[0].kind, first, second, log_prob, none, parts[0].types)

    def likely(self) -> "CandidateEdges":
        """Those that may be chosen: of pairs, what is likelier than no edge; else the likeliest, and any above 0.1."""
        if self.kind in PAIRWISE:
            kept = self.log_prob.amax(1) > self.none[:, 0]
        else:
            best = torch.full_like(self.none[:, :1], -torch.inf).expand(-1, self.log_prob.size(1))
            best = best.scatter_reduce(0, self.first[:, None].expand_as(self.log_prob), self.log_prob, "amax")
            kept = ((self.log_prob > LIKELY) | (self.log_prob == best[self.first])).any(1)
        chosen = replace(self, first=self.first[kept], second=self.second[kept], log_prob=self.log_prob[kept])
        return replace(chosen, none=self.none[kept]) if self.kind in PAIRWISE else chosen

    @property
    def num_types(self) -> int:
        return self.types.numel()

    def type_index(self, edge_type: Tensor) -> Tensor:
        """The column of each type of data, int64 [e]; -1 for one that cannot be predicted."""
        found = edge_type[:, None] == self.types
        return torch.where(found.any(1), found.int().argmax(1), -1)

    @torch.no_grad()
    def choose(self, exists: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable edges among slots that `exists` bool [slots], int64 [2, e], and their types [e].

        Always a DAG: where the most probable ones close a cycle, those of the slots on it are chosen again among edges
        that point forward in an order, of strongly connected components first, then by `place` int64 [slots].
        """
        allowed = torch.ones_like(self.first, dtype=torch.bool)
        source, target, kind = self._best(exists, allowed)
        cycles = _forward_key(source, target, place)
        if cycles is not None:
            low, high = (self.second, self.first) if self.kind == "operands" else (self.first, self.second)
            on_cycle, key = cycles
            allowed = ~on_cycle[self.first] | (key[low] < key[high])
            if self.kind in PAIRWISE:
                allowed = ~(on_cycle[low] & on_cycle[high]) | (key[low] < key[high])
            source, target, kind = self._best(exists, allowed)
        if self.kind != "operands":
            return torch.stack([source, target]), kind
        is_forward = kind == self.num_types
        stands_in = torch.full_like(place, -1)
        stands_in[target[is_forward]] = source[is_forward]
        stands_in = torch.where(exists, torch.arange(place.numel(), device=place.device), stands_in)
        for _ in range(max(place.numel(), 2).bit_length()):  # twice as far each time
            onward = torch.where(stands_in >= 0, stands_in[stands_in.clamp_min(0)], -1)
            if bool((onward == stands_in).all()):
                break
            stands_in = onward
        source, target, kind = stands_in[source[~is_forward]], target[~is_forward], kind[~is_forward]
        kept = (source >= 0) & exists[source.clamp_min(0)]
        return torch.stack([source[kept], target[kept]]), kind[kept]

    def _best(self, exists: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sources, targets and types of the most probable edges; of `operands`, also those that stand in for voids."""
        if self.kind in PAIRWISE:
            value, kind = self.log_prob.max(1)
            kept = (value > self.none[:, 0]) & allowed & exists[self.first] & exists[self.second]
            return self.first[kept], self.second[kept], kind[kept]
        pair = torch.arange(self.first.numel(), device=self.first.device)
        if self.kind == "consumer":
            kept = allowed & exists[self.first] & exists[self.second]
            value, kind = self.log_prob.max(1)
            chosen = _winners(value[kept], self.first[kept], self.none[:, 0])
            chosen = pair[kept][chosen]
            return self.first[chosen], self.second[chosen], kind[chosen]
        sources, targets, kinds = [], [], []
        for column in range(self.log_prob.size(1)):
            forward = column == self.num_types
            kept = allowed & (exists[self.first] != forward)
            chosen = pair[kept][_winners(self.log_prob[kept, column], self.first[kept], self.none[:, column])]
            sources.append(self.second[chosen])
            targets.append(self.first[chosen])
            kinds.append(torch.full_like(chosen, column))
        return torch.cat(sources), torch.cat(targets), torch.cat(kinds)


def _winners(value: Tensor, group: Tensor, none: Tensor) -> Tensor:
    """In each group the entry of the highest value, the first of equals, where it is above `none` [groups]."""
    best = strongest(value, group, none.numel(), torch.arange(value.numel(), device=value.device))
    found = best >= 0
    best, none = best[found], none[found]
    return best[value[best] > none]


def _forward_key(source: Tensor, target: Tensor, place: Tensor) -> tuple[Tensor, Tensor] | None:
    """Where edges close cycles: which slots are on one, and a number for each that all other edges raise."""
    n = place.numel()
    ends = np.stack([source.numpy(force=True), target.numpy(force=True)])
    matrix = csr_array((np.ones(ends.shape[1], dtype=np.int8), (ends[0], ends[1])), shape=(n, n))
    count, component = connected_components(matrix, directed=True, connection="strong")
    if count == n:
        return None
    size = np.bincount(component, minlength=count)
    between = component[ends]
    between = between[:, between[0] != between[1]]
    rank = levels(torch.from_numpy(np.unique(between, axis=1)).long(), count).numpy()
    # An edge between components leads to a higher level; within one, `place` decides.
    level = torch.from_numpy(rank[component].astype(np.int64) * count + component).to(place.device)
    return torch.from_numpy(size[component] > 1).to(place.device), level * n + place
