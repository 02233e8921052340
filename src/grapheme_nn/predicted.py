"""The predicted graph: what a network returns, what an objective compares, and what decoding makes a hard graph of."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn.assignment import Assignment
from grapheme_nn.candidates import CandidateEdges
from grapheme_nn.dag import is_integer
from grapheme_nn.graph import as_batch, count_graphs
from grapheme_nn.morph.base import Morph
from grapheme_nn.padding import Padding
from grapheme_nn.probabilities import check_log_probabilities, check_range

VOID, COPY = 0, 1
"""The first two labels: a slot that is nothing, and one that is what it was made from. Those of units follow."""

NEVER = -1e6  # the log-probability of what cannot be: in reach of float32, where infinity would make gradients nan


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The units that have a label: sorted, with the label of each."""

    unit: Tensor  # int64 [V - 2], sorted
    label: Tensor  # int64 [V - 2]

    def labels_of(self, unit: Tensor) -> Tensor:
        """The label of each unit, or `COPY` for one that has none and can only be copied. int64, the same shape."""
        if not self.unit.numel():
            return torch.full_like(unit, COPY)
        place = torch.searchsorted(self.unit, unit).clamp(max=self.unit.numel() - 1)
        return torch.where(self.unit[place] == unit, self.label[place], COPY)

    def units_of(self, label: Tensor) -> Tensor:
        """The unit of each label, 0 for the void and for what is copied: the inverse of `labels_of`."""
        table = self.unit.new_zeros(self.unit.numel() + 2).index_copy_(0, self.label, self.unit)
        return table[label]


@dataclass(frozen=True, eq=False)
class Targets:
    """Target graphs, padded to m nodes each: `x` says what their nodes are."""

    unit: Tensor  # int64 [B, m]: m is at least 1
    mask: Tensor  # bool [B, m]
    edge_index: Tensor | None  # int64 [2, e]: from row b m + i to row b m + j; None: from each node to the next
    edge_type: Tensor | None = None  # int64 [e], where edges have types

    @classmethod
    def of(cls, graphs: Data) -> "Targets":
        """The graphs of a PyG batch, each one's nodes in their own order."""
        if graphs.get("x") is None or graphs.x.dim() != 1 or not is_integer(graphs.x):
            raise ValueError("x of a target must be one integer per node that says what it is, see text_to_graph")
        owner = graphs.get("batch")
        padding = Padding.of(torch.zeros_like(graphs.x).long() if owner is None else owner.long(), count_graphs(graphs))
        unit, mask, edges = padding.dense(graphs.x.long()), padding.mask, graphs.get("edge_index")
        if edges is not None:
            edges = edges.long() if padding.index is None else padding.index[edges.long()]
        if not mask.size(1):  # only empty graphs: a column of padding
            unit, mask = unit.new_zeros(mask.size(0), 1), mask.new_zeros(mask.size(0), 1)
        return cls(unit, mask, edges, graphs.get("edge_type"))

    @cached_property
    def length(self) -> Tensor:
        """Nodes of each target, int64 [B]."""
        return self.mask.sum(1)

    @cached_property
    def adjacency(self) -> Tensor:
        """1 where an edge leads from node i to node j, float [B, m, m]."""
        batch, m = self.mask.shape
        if self.edge_index is None:
            return (self.mask[:, None, :] & torch.ones(m, m, device=self.mask.device).triu(1).tril(1).bool()).float()
        matrix = torch.zeros(batch * m, m, device=self.mask.device)
        return matrix.index_put_((self.edge_index[0], self.edge_index[1] % m), matrix.new_ones(())).view(batch, m, m)

    def adjacency_by_type(self, candidates: CandidateEdges) -> Tensor:
        """1 where an edge of type t leads from node i to node j, float [B, T, m, m]; others cannot be predicted."""
        batch, m = self.mask.shape
        edges = self.adjacency.nonzero() if self.edge_index is None else self.edge_index
        if self.edge_index is None:
            edges = torch.stack([edges[:, 0] * m + edges[:, 1], edges[:, 0] * m + edges[:, 2]])
        kind = candidates.type_index(torch.zeros_like(edges[0]) if self.edge_type is None else self.edge_type)
        known = kind >= 0
        matrix = torch.zeros(batch, candidates.num_types, m, m, device=self.mask.device)
        source, target = edges[:, known]
        matrix[source // m, kind[known], source % m, target % m] = 1
        return matrix


@dataclass(frozen=True, eq=False)
class PredictedGraph:
    """B predicted graphs, padded to s slots each: nodes that may become nodes of the output.

    Slots stand in topological order, and edges of `graph` and `next_log_prob` point forward in it. `candidates` may
    point anywhere: those that are chosen of them are a DAG (`CandidateEdges.choose`).
    """

    label_log_prob: Tensor  # [B, s, V]: column 0 the void, 1 copying, then the labels; a node that is not there is void
    next_log_prob: Tensor | None  # [B, s + 1, 1 + reach] as in `objective.path`; None: edges are those of `graph`
    graph: Morph  # the slots as the morphs made them, with their history
    x: Tensor  # [B, s, d]: features that the labels were read from
    unit: Tensor  # int64 [B, s]: what copying gives
    vocabulary: Vocabulary
    candidates: CandidateEdges | None = None  # where edges are predicted
    checked: bool = field(default=True, kw_only=True)  # False: known to be right, as what a network predicts

    def __post_init__(self) -> None:
        if not self.checked:
            return
        for name, given in (("label_log_prob", self.label_log_prob), ("unit", self.unit)):
            if given.shape[:2] != self.mask.shape:
                shapes = f"{name} has shape {list(given.shape)}, but graph has {list(self.mask.shape)}"
                raise ValueError(f"{shapes} graphs and slots: {name} begins with [B, s]")
        check_log_probabilities("label_log_prob", "a slot", self.label_log_prob, self.mask)
        if self.graph.existence is not None:
            check_range("existence of graph", self.graph.existence, 1.0)
        check_range("edge_weight of graph", self.graph.edge_weight)
        if self.next_log_prob is not None:
            check_range("exp(next_log_prob)", self.next_log_prob.exp(), 1.0)
        if self.candidates is not None:
            check_range("exp(log_prob) of candidates", self.candidates.log_prob.exp(), 1.0)

    @property
    def mask(self) -> Tensor:
        """Where there is a slot, bool [B, s]."""
        return self.graph.padding.mask

    @property
    def history(self) -> Assignment:
        """Which node of the input made which slot: the product of the assignments of all morphs."""
        return self.graph.history

    @cached_property
    def node(self) -> Tensor:
        """The input node that a slot would copy, int64 [B, s]; -1 for none, anything in the padding."""
        return self.graph.padding.dense(self.graph.main_nodes)

    @cached_property
    def spelled(self) -> Tensor:
        """As `label_log_prob`, the probability to copy added to that of the label that the copied unit has."""
        log_prob, place = self.label_log_prob, self.vocabulary.labels_of(self.unit)[:, :, None]
        copy = log_prob[:, :, COPY : COPY + 1]
        known = place != COPY
        total = torch.where(known, torch.logaddexp(log_prob.gather(2, place), copy), copy)
        spelled = log_prob.masked_fill(torch.arange(log_prob.size(2), device=place.device) == COPY, -torch.inf)
        return spelled.scatter(2, place, total)

    @cached_property
    def spelled_apart(self) -> tuple[Tensor, Tensor]:
        """Log-probabilities as `spelled`, but of labels alone, and of every unit that has none by itself.

        [B, s, V + U], -inf for the void, for copying and in padding, then a column for each of the U units of a graph
        that can only be copied; and a slot that copies it, int64 [B, U].
        """
        copied = self.mask & (self.vocabulary.labels_of(self.unit) == COPY)
        rows = [list(dict.fromkeys(unit[there].tolist())) for unit, there in zip(self.unit, copied, strict=True)]
        units = self.unit.new_zeros(len(rows), max(map(len, rows), default=0))
        for row, own in enumerate(rows):
            units[row, : len(own)] = torch.tensor(own)
        same = copied[:, :, None] & (self.unit[:, :, None] == units[:, None, :])
        apart = torch.where(same, self.spelled[:, :, COPY, None], -torch.inf)
        known = self.spelled.index_fill(2, torch.tensor([VOID, COPY], device=units.device), -torch.inf)
        labels = torch.where(self.mask[:, :, None], torch.cat([known, apart], 2), -torch.inf)
        return labels, same.byte().argmax(1) if units.numel() else units

    def match(self, targets: Targets, slots: slice = slice(None)) -> Tensor:
        """The log-probability that slot i is what target node j is, by its label or copied: [B, s, m]."""
        log_prob = self.label_log_prob[:, slots]
        index = self.vocabulary.labels_of(targets.unit)[:, None, :].expand(-1, log_prob.size(1), -1)
        label = torch.where(index != COPY, log_prob.gather(2, index), NEVER)
        same = self.unit[:, slots, None] == targets.unit[:, None, :]
        return torch.where(same, torch.logaddexp(label, log_prob[:, :, COPY : COPY + 1].expand_as(label)), label)

    def as_data(self) -> Batch:
        """The slots as a PyG batch with `label_log_prob` [slots, V - 1], `existence`, `edge_index` and `edge_weight`.

        Column 0 is a copied unit that has no label, then come the labels, copying counted as the label of what is
        copied; all given that the slot exists. Where edges are predicted with types, there is `edge_type`, too.
        """
        padding, (edge_index, edge_weight) = self.graph.padding, self.edges()
        void = padding.flat(self.label_log_prob[:, :, VOID])
        label = padding.flat(self.spelled)[:, VOID + 1 :].log_softmax(1)
        nodes = {"label_log_prob": label, "existence": -torch.expm1(void)}
        edges = {"edge_index": edge_index, "edge_weight": edge_weight}
        edges |= {} if self.edge_type is None else {"edge_type": self.edge_type}
        return as_batch(nodes, edges, padding.owner, self.mask.size(0))

    def as_pair(self, target: Data) -> tuple[Batch, Data]:
        """This graph and a target as `StructuralLoss` compares them: the target's `label` is a column of the graph's.

        The columns are those of `as_data`, and one more for each unit of the target that has no label.
        """
        graph, labelled = self.as_data(), target.clone()
        label = self.vocabulary.labels_of(target.x) - COPY
        strange = torch.unique(target.x[label == 0])
        copied = graph.label_log_prob[:, :1]
        same = self.graph.padding.flat(self.unit)[:, None] == strange  # [slots, strange units]
        others = torch.where(same.any(1, keepdim=True), -torch.inf, copied)
        own = torch.where(same, copied, -torch.inf)
        labelled.label = torch.where(
            label == 0, graph.label_log_prob.size(1) + torch.searchsorted(strange, target.x), label
        )
        graph.label_log_prob = torch.cat([others, graph.label_log_prob[:, 1:], own], 1)
        return graph, labelled

    @property
    def edge_type(self) -> Tensor | None:
        """What the types of `edges` are called in data, int64 [e]; None where they have none."""
        return None if self.candidates is None else self.candidates.types.repeat(self.candidates.first.numel())

    def edges(self) -> tuple[Tensor, Tensor]:
        """The candidate edges between slots, int64 [2, e], and their probabilities [e].

        Of `candidates`, each pair once for each type (see `edge_type`); what stands in for a void is no edge.
        """
        if self.candidates is not None:
            ends = torch.stack([self.candidates.first, self.candidates.second])
            ends = ends.flip(0) if self.candidates.kind == "operands" else ends
            count = self.candidates.num_types
            return ends.repeat_interleave(count, 1), self.candidates.log_prob[:, :count].exp().flatten()
        if self.next_log_prob is None:
            return self.graph.structure_edges, self.graph.structure_weights
        slots, reach = self.mask.size(1), self.next_log_prob.size(2) - 1
        number = self.graph.padding.dense(torch.arange(self.graph.num_nodes, device=self.mask.device))
        number = torch.nn.functional.pad(torch.where(self.mask, number, -1), (0, reach), value=-1)
        window = number[:, 1:].unfold(1, reach, 1)[:, :slots]
        there = (number[:, :slots, None] >= 0) & (window >= 0)
        source = number[:, :slots, None].expand_as(window)[there]
        return torch.stack([source, window[there]]), self.next_log_prob[:, 1:, 1:][there].exp()
