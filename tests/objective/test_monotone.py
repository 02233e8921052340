"""Alignment that keeps the order is held against all monotone plans written out."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch_geometric.data import Data

from grapheme_nn import GraphTransformNet, ModelConfig, texts_to_batch
from grapheme_nn.objective.base import without_voids
from grapheme_nn.objective.monotone import Monotone, monotone_alignment
from grapheme_nn.objective.path import path_alignment

INF = float("inf")


def enumerated(label_log_prob: Tensor, target: list[int], n: int) -> tuple[Tensor, Tensor]:
    """Value and plan [n, m] of one item from all its monotone plans."""
    plan = torch.zeros(label_log_prob.size(0), len(target), dtype=torch.float64)
    found = list(combinations(range(n), len(target)))
    if not found:
        return torch.tensor(INF, dtype=torch.float64), plan
    scores = []
    for slots in found:
        labels = dict(zip(slots, target, strict=True))
        scores.append(sum((label_log_prob[i, labels.get(i, 0)] for i in range(n)), label_log_prob.new_zeros(())))
    for slots, probability in zip(found, torch.stack(scores).softmax(0), strict=True):
        plan[list(slots), range(len(target))] += probability
    return -torch.stack(scores).logsumexp(0), plan


def example(seed: int, n: int, m: int, sharpness: float = 1.0):
    """Three items with n, n - 1 and 1 slots, and m, m - 1 and 1 targets."""
    generator = torch.Generator().manual_seed(seed)
    slot_mask = torch.arange(n) < torch.tensor([[n], [n - 1], [1]])
    target_mask = torch.arange(m) < torch.tensor([[m], [max(m - 1, 0)], [min(m, 1)]])
    label_log_prob = sharpness * torch.randn(3, n, 4, generator=generator, dtype=torch.float64)
    target = torch.randint(1, 4, (3, m), generator=generator)
    return label_log_prob.log_softmax(2), target, {"slot_mask": slot_mask, "target_mask": target_mask}


def aligned(label_log_prob, target, *, slot_mask=None, target_mask=None):
    """As the objective does it: -inf and, for the void, 0 in the padding."""
    slot_mask = torch.ones(label_log_prob.shape[:2], dtype=torch.bool) if slot_mask is None else slot_mask
    target_mask = torch.ones(target.shape, dtype=torch.bool) if target_mask is None else target_mask
    label = label_log_prob.gather(2, target[:, None, :].expand(-1, label_log_prob.size(1), -1))
    label = torch.where(slot_mask[:, :, None] & target_mask[:, None, :], label, -INF)
    return monotone_alignment(label, torch.where(slot_mask, label_log_prob[:, :, 0], 0), target_mask.sum(1))


@given(st.integers(0, 999), st.integers(1, 6), st.integers(0, 6), st.sampled_from([1.0, 20.0, 1000.0]))
@settings(max_examples=60, deadline=None)
def test_value_and_plan_are_those_of_all_monotone_plans_written_out(seed, n, m, sharpness):
    label_log_prob, target, masks = example(seed, n, m, sharpness)
    found = aligned(label_log_prob, target, **masks)
    for item in range(3):
        slots, length = int(masks["slot_mask"][item].sum()), int(masks["target_mask"][item].sum())
        value, plan = enumerated(label_log_prob[item], target[item, :length].tolist(), slots)
        torch.testing.assert_close(found.value[item], value, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found.plan[item, :, :length], plan, rtol=1e-10, atol=1e-10)
        assert found.plan[item, :, length:].eq(0).all()


def test_monotone_alignment_is_a_path_that_pays_for_going_round():
    # An edge over k slots costs the voids of these; then both sum over the same plans.
    label_log_prob, target, _ = example(5, 5, 3)
    void = label_log_prob[:, :, 0]
    edges = torch.full((3, 6, 6), -INF, dtype=torch.float64)
    for i in range(6):
        edges[:, i, 0] = void[:, i:].sum(1)
        for step in range(1, 6 - i):
            edges[:, i, step] = void[:, i : i + step - 1].sum(1)
    label = label_log_prob.gather(2, target[:, None, :].expand(-1, 5, -1))
    path = path_alignment(label, edges, torch.tensor([3, 3, 3]))
    monotone = aligned(label_log_prob, target)
    torch.testing.assert_close(path.value, monotone.value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(path.plan, monotone.plan, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (3, 0), (1, 1), (4, 4)])
def test_gradients_are_exact(n, m):
    label_log_prob, target, masks = example(0, n, m)
    target[:, 1:2] = target[:, :1]  # with a repeated label

    def value(labels: Tensor) -> Tensor:
        found = aligned(labels, target, **masks).value
        return found[found < INF]

    label_log_prob.requires_grad_()
    assert gradcheck(value, (label_log_prob,), atol=1e-8, rtol=1e-5)
    assert gradcheck(lambda x: aligned(x.log_softmax(2), target, **masks).mean, (label_log_prob,), fast_mode=True)


def test_a_slot_that_is_not_there_may_stand_anywhere():
    label_log_prob, target, _ = example(8, 6, 3)
    slot_mask = torch.tensor([[True, True, False, True, False, True]]).expand(3, 6)
    holey = torch.where(slot_mask[:, :, None], label_log_prob, float("nan"))
    found = aligned(holey, target, slot_mask=slot_mask)
    without = aligned(label_log_prob[:, [0, 1, 3, 5]], target)
    torch.testing.assert_close(found.value, without.value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.plan[:, [0, 1, 3, 5]], without.plan, rtol=1e-12, atol=1e-12)


def test_a_long_suffix_may_grow_at_the_end():
    # The first two slots are sure of a and b; the other twenty know that they are c, d, ... or void.
    target = torch.arange(1, 9)[None]
    label_log_prob = torch.full((1, 22, 9), 1e-4, dtype=torch.float64)
    for slot, label in [(0, 1), (1, 2), *((15 + j, 3 + j) for j in range(6))]:
        label_log_prob[0, slot, label] = 1
    label_log_prob[0, 2:15, 0] = label_log_prob[0, 21, 0] = 1
    plan = aligned(label_log_prob.log().log_softmax(2), target).plan[0]
    assert plan.argmax(0).tolist() == [0, 1, 15, 16, 17, 18, 19, 20]


def test_padding_and_batch_change_nothing(predict, wanted):
    torch.manual_seed(3)
    slots, targets = [5, 3, 1], [[2, 4, 4], [3, 2], [4]]
    labels = torch.randn(3, 5, 5, dtype=torch.float64).log_softmax(2)  # whatever, in the padding too
    wide = labels.clone().requires_grad_()
    together = Monotone()(predict(wide, slots), wanted(targets))
    together.value.sum().backward()
    assert wide.grad[1, 3:].eq(0).all()
    assert wide.grad[2, 1:].eq(0).all()
    for item, (count, row) in enumerate(zip(slots, targets, strict=True)):
        own = labels[item : item + 1, :count].clone().requires_grad_()
        alone = Monotone()(predict(own, [count]), wanted([row]))
        alone.value.sum().backward()
        torch.testing.assert_close(alone.value[0], together.value[item], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.plan[0], together.plan[item, :count, : len(row)], rtol=0, atol=1e-12)
        torch.testing.assert_close(own.grad[0], wide.grad[item, :count], rtol=0, atol=1e-12)


def test_a_target_that_cannot_be_spelled_is_infinite_without_gradient():
    label_log_prob, target, masks = example(1, 4, 4)
    label_log_prob.requires_grad_()
    masks["slot_mask"][0, 3] = False  # three slots for four targets
    found = aligned(label_log_prob, target, **masks)
    assert found.value.isfinite().tolist() == [False, True, True]
    assert found.plan[0].eq(0).all()
    found.value.sum().backward()
    assert label_log_prob.grad.isfinite().all()
    assert label_log_prob.grad[0].eq(0).all()
    assert label_log_prob.grad[1].ne(0).any()


@pytest.mark.parametrize("sharpness", [1.0, 1e3])
def test_extremes_stay_finite(sharpness):
    label_log_prob, target, masks = example(6, 6, 3, sharpness)
    label_log_prob[0, 2:, target[0, 0]] = -INF
    label_log_prob[1, :, 0] = -INF
    label_log_prob = label_log_prob.float().requires_grad_()
    found = aligned(label_log_prob, target, **masks)
    assert not found.value.isnan().any()
    assert found.plan.isfinite().all()
    found.mean.backward()
    assert label_log_prob.grad.isfinite().all()


def test_a_unit_that_no_label_and_no_slot_has_is_infinite_without_gradient(predict):
    labels = torch.zeros(1, 3, 5, dtype=torch.float64).log_softmax(2).requires_grad_()
    target = Data(x=torch.tensor([999]), edge_index=torch.zeros(2, 0, dtype=torch.long))
    found = Monotone()(predict(labels, [3]), target)
    assert found.value.tolist() == [INF]
    assert found.mean == 0


def test_the_most_probable_labels_are_spelled_without_voids(predict):
    chosen = torch.tensor([[0, 3, 0, 3, 2], [0, 0, 0, 0, 4], [2, 2, 2, 2, 2]])
    label_log_prob = torch.nn.functional.one_hot(chosen, 5).double().log()
    found = Monotone().decode(predict(label_log_prob, [5, 4, 2]))
    assert found.label.tolist() == [[3, 3, 2], [0, 0, 0], [2, 2, 0]]
    assert found.length.tolist() == [3, 0, 2]
    assert found.slot[0].tolist() == [1, 3, 4]
    assert without_voids(chosen[:, :0]).label.shape == (3, 0)


def test_targets_without_units_are_met_by_a_sentence(predict):
    edges = torch.zeros(2, 0, dtype=torch.long)
    for x in (torch.ones(2), torch.ones(2, 1, dtype=torch.long), None):
        with pytest.raises(ValueError, match="x of a target must be one integer per node"):
            Monotone()(predict(torch.zeros(1, 2, 4), [2]), Data(x=x, edge_index=edges))


def test_a_batch_of_nothing_is_fine():
    none, one = torch.zeros(2, dtype=torch.long), torch.ones(2, dtype=torch.long)
    assert monotone_alignment(torch.zeros(2, 0, 0), torch.zeros(2, 0), none).value.tolist() == [0, 0]
    assert monotone_alignment(torch.zeros(2, 0, 1), torch.zeros(2, 0), one).value.tolist() == [INF, INF]
    assert monotone_alignment(torch.zeros(0, 3, 2), torch.zeros(0, 3), none[:0]).mean == 0


@pytest.mark.parametrize("cells", [1, 7, 1 << 22])
def test_the_value_alone_is_that_of_the_comparison(monkeypatch, cells):
    monkeypatch.setattr("grapheme_nn.objective.monotone._CELLS", cells)
    model = GraphTransformNet(ModelConfig(labels=("a", "b"), width=16, hidden=8, layers=1)).eval()
    predicted = model(texts_to_batch(["abc", "b", "cab", "a"]))
    target = texts_to_batch(["ab", "", "bcb", "ababab"])
    wanted = model.objective(predicted, target).value
    assert wanted.isinf().tolist() == [False, False, False, True]
    torch.testing.assert_close(model.objective.value(predicted, target), wanted.detach())
