"""What all objectives have in common: how a predicted graph is compared with a target graph, and decoded."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn.dag import Integers
from grapheme_nn.derivatives import once_differentiable
from grapheme_nn.graph import as_batch, chain_edges
from grapheme_nn.morph.base import Morph
from grapheme_nn.objective.search import Walks
from grapheme_nn.predicted import COPY, NEVER, VOID, PredictedGraph, Targets


@dataclass(frozen=True)
class Comparison:
    """How far predicted graphs are from their targets, and who became whom."""

    value: Tensor  # [B]: inf, with gradient 0, where the slots cannot become the target at all
    plan: Tensor  # [B, s, m]: how much slot i becomes target node j, without gradient; 0 in padding

    @property
    def mean(self) -> Tensor:
        """The mean value over the pairs that are possible; 0 where none is."""
        possible = self.value != torch.inf  # nan is no such case: it must be seen
        return torch.where(possible, self.value, 0).sum() / possible.sum().clamp(min=1)


@dataclass(frozen=True)
class Decoded:
    """What predicted graphs say: labelled nodes in the order of their slots, padded to the longest."""

    label: Tensor  # int64 [B, L]: void after the end
    slot: Tensor  # int64 [B, L]: which slot each node comes from; anything after the end
    length: Tensor  # int64 [B]
    edge_index: Tensor | None = None  # int64 [2, e]: nodes numbered graph after graph; None: from each to the next
    edge_type: Tensor | None = None  # int64 [e], where edges have types

    def as_data(self, predicted: PredictedGraph) -> Batch:
        """Hard PyG graphs again: `x` int64 says what each node is."""
        there = torch.arange(self.label.size(1), device=self.label.device) < self.length[:, None]
        copied = predicted.unit.gather(1, torch.where(there, self.slot, 0))
        unit = torch.where(self.label == COPY, copied, predicted.vocabulary.units_of(self.label))
        owner = torch.arange(self.length.numel(), device=unit.device).repeat_interleave(self.length)
        pointer = torch.nn.functional.pad(self.length.cumsum(0), (1, 0))
        edges = chain_edges(pointer) if self.edge_index is None else self.edge_index
        fields = {"edge_index": edges} | ({} if self.edge_type is None else {"edge_type": self.edge_type})
        return as_batch({"x": unit[there]}, fields, owner, self.length.numel())


class Objective(ABC):
    """Compares predicted graphs with target graphs, and says what a predicted graph means.

    One more objective is one more class, registered by `@OBJECTIVES.register("name")`; the command then knows it by
    that name. `align` is what it must have; `decode` and `needed_slots` have defaults.
    """

    predicts_next: ClassVar[bool] = False  # whether the network must predict which slot follows which
    has_void: ClassVar[bool] = True  # whether a slot may be nothing
    done: float = 1.0  # the share of a training that is done, which the loop tells: plans with edges begin soft
    value_has_plan: ClassVar[bool] = True  # whether a value alone takes the memory of a plan, of slots x target nodes
    compares_edges: ClassVar[bool] = False  # whether targets may be graphs whose edges are predicted

    def __call__(self, predicted: PredictedGraph, target: Data) -> Comparison:
        """Compare with target graphs: a PyG batch with `x` int64 and `edge_index`."""
        found = self._aligned(predicted, _pairwise(predicted, target))
        return Comparison(_possible(found.value), found.plan)

    @torch.no_grad()
    def value(self, predicted: PredictedGraph, target: Data) -> Tensor:
        """The value of each comparison alone, without its plan and without gradient: [B]."""
        return _possible(self.value_alone(predicted, _pairwise(predicted, target)))

    def value_alone(self, predicted: PredictedGraph, targets: Targets) -> Tensor:
        """The value of `align`, for objectives that have it in less memory than the plan."""
        return self._aligned(predicted, targets).value

    def _aligned(self, predicted: PredictedGraph, targets: Targets) -> Comparison:
        """What `align` gives, which others may have written, checked."""
        found: object = self.align(predicted, targets)
        shape = (*predicted.mask.shape, targets.mask.size(1))
        wanted = f"{type(self).__name__}.align must return a Comparison of value [B] and plan [B, s, m]"
        if not isinstance(found, Comparison):
            raise TypeError(f"{wanted}, but returned a {type(found).__name__}")
        value, plan = ((*getattr(part, "shape", ()),) for part in (found.value, found.plan))
        if (value, plan) != (shape[:1], shape):
            raise TypeError(f"{wanted}, here {list(shape)}, but returned value {list(value)} and plan {list(plan)}")
        return found

    @abstractmethod
    def align(self, predicted: PredictedGraph, targets: Targets) -> Comparison:
        """The value of each pair, and the plan behind it."""

    @torch.no_grad()
    def decode(self, predicted: PredictedGraph) -> Decoded:
        """The most probable label of each slot, without the voids: edges that led through them lead on."""
        label = torch.where(predicted.mask, predicted.spelled.argmax(2), VOID)
        if predicted.candidates is None:
            return without_voids(label, predicted.graph)
        decoded, graph, there = without_voids(label), predicted.graph, label != VOID
        edges, kind = predicted.candidates.choose(graph.padding.flat(there), graph.place)
        number = graph.padding.flat(there.flatten().cumsum(0).view_as(there) - 1)
        return replace(decoded, edge_index=number[edges], edge_type=predicted.candidates.types[kind])

    def walks(self, predicted: PredictedGraph) -> Walks | None:
        """What `best_outputs` searches in; None where the probability of an output is no sum over walks."""
        return None

    def needed_slots(self, target: Integers) -> int:
        """How many slots a target needs, whose nodes are `target` int64 [m]."""
        return target.size


def _pairwise(predicted: PredictedGraph, target: Data) -> Targets:
    targets = Targets.of(target)
    if targets.mask.size(0) != predicted.mask.size(0):
        counts = f"{predicted.mask.size(0)} predicted graphs and {targets.mask.size(0)} targets"
        raise ValueError(f"there are {counts}: an objective compares them pairwise")
    return targets


def _possible(value: Tensor) -> Tensor:
    """inf, and no gradient, where a slot had to become what it cannot. What is nan stays nan."""
    return torch.where(value >= -NEVER / 2, torch.inf, value)


def without_voids(label: Tensor, graph: Morph | None = None) -> Decoded:
    """The slots of a graph (by default a chain) that are not void, in order, from the labels of all, int64 [B, s]."""
    there = label != VOID
    length = there.sum(1)
    width = int(length.max()) if length.numel() else 0
    slot = (~there).byte().argsort(dim=1, stable=True)[:, :width]
    edges = None if graph is None or graph.is_chain else _contracted(there, graph)
    return Decoded(label.gather(1, slot), slot, length, edges)


def _contracted(there: Tensor, graph: Morph) -> Tensor:
    """Edges between the slots that are `there` bool [B, s], through any number that are not. On the host."""
    order = torch.where(there, there.flatten().cumsum(0).view_as(there) - 1, -1)
    number = graph.padding.flat(order).numpy(force=True)  # of each node among those that stay
    source, target = graph.structure_edges[:, graph.structure_weights > 0].numpy(force=True)
    ones = np.ones(source.size, dtype=bool)
    edges = csr_array((ones, (source, target)), shape=(number.size, number.size))
    stays = number >= 0
    ways, onward = edges[stays], edges[~stays]
    found, through = ways[:, stays], ways[:, ~stays]
    while through.nnz:  # as often as the longest run of voids has edges
        ways = through @ onward
        found, through = found + ways[:, stays], ways[:, ~stays]
    return torch.from_numpy(np.stack(found.tocoo().coords).astype(np.int64)).to(there.device)


def masked_match(predicted: PredictedGraph, targets: Targets, slots: slice = slice(None)) -> Tensor:
    """`PredictedGraph.match` [B, s, m], -inf in the padding of slots and of target nodes."""
    there = predicted.mask[:, slots, None] & targets.mask[:, None, :]
    return torch.where(there, predicted.match(targets, slots), -torch.inf)


def exact_dtype(tensor: Tensor) -> torch.dtype:
    """The type that recursions run in: float64, which sums over many plans want, where the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def with_posteriors(value: Tensor, inputs: tuple[Tensor, ...], posteriors: tuple[Tensor, ...]) -> Tensor:
    """`value` [B], minus the log of a sum over plans, as a function of `inputs` [B, ...], log-probabilities in it.

    Its exact gradient is minus the posteriors of the inputs, of their shapes and types. They come with the plan, so
    autograd need not follow the recursion that made them.
    """
    return _KnownPosteriors.apply(value, *inputs, *posteriors)  # type: ignore[no-any-return,no-untyped-call]


class _KnownPosteriors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, *inputs_and_posteriors: Tensor) -> Tensor:
        half = len(inputs_and_posteriors) // 2
        ctx.save_for_backward(*inputs_and_posteriors[half:])
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [posterior * -grad.view(-1, *[1] * (posterior.dim() - 1)) for posterior in ctx.saved_tensors]
        return None, *gradients, *[None] * len(gradients)
