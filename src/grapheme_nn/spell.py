"""The room of spelling: what a predicted graph says, and how probable it makes a text."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Batch

from grapheme_nn.assignment import Assignment
from grapheme_nn.inputs import Inputs
from grapheme_nn.loss.ctc import ctc_value, merge_repeats
from grapheme_nn.loss.path import PathLoss, best_path
from grapheme_nn.loss.spelling import VOID, Spelling
from grapheme_nn.loss.transport import TransportLoss

COPY = 1  # the label of a slot that says what its parent says; the labels of units begin after it
_NEVER = -1e6  # the log-probability of what cannot be, in reach of float32, where infinity would make gradients nan


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted graphs: DAGs of slots, padded to s slots each, and how they came about."""

    label_log_prob: Tensor  # [B, s, V]: column 0 the void, 1 copying the parent, then the labels
    edge_log_prob: Tensor | None  # [B, s + 1, 1 + reach] as in `PathLoss`; None where a slot leads to the next
    slot_mask: Tensor  # bool [B, s]
    unit: Tensor  # int64 [B, s]: which unit the parent of each slot is
    unit_label: Tensor  # int64 [B, s]: the label of that unit, COPY where it has none
    inputs: Inputs
    parts: int

    @cached_property
    def history(self) -> Assignment:
        """Which node of the input made which slot, the slots numbered without padding."""
        mask = self.inputs.structure.mask
        count = int(mask.sum())
        node = torch.arange(count, device=mask.device) if self.inputs.node is None else self.inputs.node[mask]
        total = count if self.inputs.num_nodes is None else self.inputs.num_nodes
        slot = torch.arange(count * self.parts, device=mask.device)
        weight = self.label_log_prob.new_ones(slot.numel())
        return Assignment._unchecked(node[slot // self.parts], slot, weight, total, slot.numel())

    @cached_property
    def merged(self) -> Tensor:
        """As `label_log_prob`, the probability to copy added to that of the label which the parent's unit has."""
        log_prob, place = self.label_log_prob, self.unit_label[:, :, None]
        copy = log_prob[:, :, COPY : COPY + 1]
        known = place != COPY
        total = torch.where(known, torch.logaddexp(log_prob.gather(2, place), copy), copy)
        merged = log_prob.masked_fill(torch.arange(log_prob.size(2), device=place.device) == COPY, -torch.inf)
        return merged.scatter(2, place, total)

    def graph(self) -> Batch:
        """The slots as a PyG batch: `x` [slots, V] and `edge_weight` [e] are log-probabilities."""
        batch, slots = self.slot_mask.shape
        number = (self.slot_mask.flatten().cumsum(0) - 1).view(batch, slots)
        reach = 1 if self.edge_log_prob is None else self.edge_log_prob.size(2) - 1
        start = torch.arange(slots, device=number.device)[:, None]
        end = start + torch.arange(1, reach + 1, device=number.device)
        there = (end < slots) & self.slot_mask[:, :, None] & self.slot_mask[:, end.clamp(max=max(slots - 1, 0))]
        weight = self.label_log_prob.new_zeros(there.shape)
        if self.edge_log_prob is not None:
            weight = self.edge_log_prob[:, 1:, 1:]
        source = number[:, :, None].expand_as(there)[there]
        target = number[:, end.clamp(max=max(slots - 1, 0))][there]
        owner = torch.arange(batch, device=number.device)[:, None].expand_as(number)[self.slot_mask]
        return Batch(
            x=self.label_log_prob[self.slot_mask],
            edge_index=torch.stack([source, target]),
            edge_weight=weight[there],
            batch=owner,
            ptr=torch.nn.functional.pad(self.slot_mask.sum(1).cumsum(0), (1, 0)),
        )


@dataclass(frozen=True, eq=False)
class Targets:
    """Texts to be spelled, padded to m units each."""

    unit: Tensor  # int64 [B, m]
    mask: Tensor  # bool [B, m]

    def to(self, device: torch.device | str) -> "Targets":
        return Targets(self.unit.to(device), self.mask.to(device))


def target_value(loss: str, prediction: Prediction, targets: Targets, target_label: Tensor) -> Tensor:
    """Minus the log-probability that the slots spell the targets [B], by one of the three losses.

    A target is spelled by its label, or copied from a parent that is the same unit: both probabilities are added.
    """
    log_prob = prediction.label_log_prob
    index = target_label[:, None, :].expand(-1, log_prob.size(1), -1)
    label = torch.where(index != COPY, log_prob.gather(2, index), _NEVER)
    same = prediction.unit[:, :, None] == targets.unit[:, None, :]
    label = torch.where(same, torch.logaddexp(label, log_prob[:, :, COPY : COPY + 1].expand_as(label)), label)
    value = _value(loss, prediction, targets, label)
    # Where a slot had to spell what it cannot, minus what it cost: inf, and no gradient. What is nan stays nan.
    return torch.where(value >= -_NEVER / 2, torch.inf, value)


def _value(loss: str, prediction: Prediction, targets: Targets, label: Tensor) -> Tensor:
    """Minus the log-probability of the targets [B], where slot i spells target j with that of `label` [B, s, m]."""
    void = prediction.label_log_prob[:, :, VOID]
    if loss == "ctc":
        first = targets.unit  # where all targets are empty, there is no first of anything
        if first.size(1):
            first = (targets.unit[:, :, None] == targets.unit[:, None, :]).byte().argmax(2)
        return ctc_value(label, void, first, prediction.slot_mask.sum(1), targets.mask.sum(1))
    # An item's targets are its own labels, so that what copying adds need not be in a table of all labels.
    own = torch.cat([void[:, :, None], label], 2)
    number = torch.arange(1, targets.unit.size(1) + 1, device=label.device).expand_as(targets.unit)
    masks = {"slot_mask": prediction.slot_mask, "target_mask": targets.mask}
    if loss == "transport":
        spelling: Spelling = TransportLoss()(own, number, **masks)
    else:
        spelling = PathLoss()(own, number, edge_log_prob=prediction.edge_log_prob, **masks)
    return spelling.value


@torch.no_grad()
def read(loss: str, prediction: Prediction) -> tuple[Tensor, Tensor, Tensor]:
    """What the slots spell: labels int64 [B, L], 0 after the end, the slots that spell them [B, L], lengths [B]."""
    if loss == "path":
        assert prediction.edge_log_prob is not None
        walk = best_path(prediction.merged, prediction.edge_log_prob, slot_mask=prediction.slot_mask)
        return walk.labels, walk.slots, walk.length
    label = prediction.merged.argmax(2)
    if loss == "ctc":
        # A copied unit without label is told from another one by what it is.
        repeats = merge_repeats(torch.where(label == COPY, -2 - prediction.unit.abs(), label))
        label = torch.where(repeats == VOID, VOID, label)
    label = torch.where(prediction.slot_mask, label, VOID)
    spelled = label != VOID
    length = spelled.sum(1)
    width = int(length.max()) if length.numel() else 0
    slot = (~spelled).byte().argsort(dim=1, stable=True)[:, :width]
    return label.gather(1, slot), slot, length
