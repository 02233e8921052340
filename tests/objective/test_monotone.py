"""Transport that keeps the order is held against all monotone plans written out; the soft one against itself."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from grapheme_nn.loss import PathLoss, TransportLoss, most_probable_labels
from grapheme_nn.loss import transport as transport_file

INF = float("inf")
ORDERS = ["exact", "soft"]


def enumerated(label_log_prob: Tensor, target: list[int], n: int, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Value and plan [n, m] of one item from all its monotone plans."""
    plan = torch.zeros(label_log_prob.size(0), len(target), dtype=torch.float64)
    found = list(combinations(range(n), len(target)))
    if not found:
        return torch.tensor(INF, dtype=torch.float64), plan
    scores = []
    for slots in found:
        labels = dict(zip(slots, target, strict=True))
        scores.append(
            sum((label_log_prob[i, labels.get(i, 0)] for i in range(n)), label_log_prob.new_zeros(())) / temperature
        )
    for slots, probability in zip(found, torch.stack(scores).softmax(0), strict=True):
        plan[list(slots), range(len(target))] += probability
    return -temperature * torch.stack(scores).logsumexp(0), plan


def example(seed: int, n: int, m: int, sharpness: float = 1.0):
    """Three items with n, n - 1 and 1 slots, and m, m - 1 and 1 targets."""
    generator = torch.Generator().manual_seed(seed)
    slot_mask = torch.arange(n) < torch.tensor([[n], [n - 1], [1]])
    target_mask = torch.arange(m) < torch.tensor([[m], [max(m - 1, 0)], [min(m, 1)]])
    label_log_prob = sharpness * torch.randn(3, n, 4, generator=generator, dtype=torch.float64)
    target = torch.randint(1, 4, (3, m), generator=generator)
    return label_log_prob.log_softmax(2), target, {"slot_mask": slot_mask, "target_mask": target_mask}


@given(
    st.integers(0, 999),
    st.integers(1, 6),
    st.integers(0, 6),
    st.sampled_from([1.0, 20.0, 1000.0]),
    st.sampled_from([1.0, 0.3]),
)
@settings(max_examples=60, deadline=None)
def test_value_and_plan_are_those_of_all_monotone_plans_written_out(seed, n, m, sharpness, temperature):
    label_log_prob, target, masks = example(seed, n, m, sharpness)
    spelling = TransportLoss(temperature=temperature)(label_log_prob, target, **masks)
    for item in range(3):
        slots, length = int(masks["slot_mask"][item].sum()), int(masks["target_mask"][item].sum())
        value, plan = enumerated(label_log_prob[item], target[item, :length].tolist(), slots, temperature)
        torch.testing.assert_close(spelling.value[item], value, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(spelling.plan[item, :, :length], plan, rtol=1e-10, atol=1e-10)
        assert spelling.plan[item, :, length:].eq(0).all()


def test_exact_transport_is_a_path_that_pays_for_going_round():
    # An edge over k slots costs the voids of these; then both losses sum over the same plans.
    label_log_prob, target, _ = example(5, 5, 3)
    void = label_log_prob[:, :, 0]
    edges = torch.full((3, 6, 6), -INF, dtype=torch.float64)
    for i in range(6):
        edges[:, i, 0] = void[:, i:].sum(1)
        for step in range(1, 6 - i):
            edges[:, i, step] = void[:, i : i + step - 1].sum(1)
    path = PathLoss()(label_log_prob, target, edge_log_prob=edges)
    transport = TransportLoss()(label_log_prob, target)
    torch.testing.assert_close(path.value, transport.value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(path.plan, transport.plan, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
@pytest.mark.parametrize(("n", "m"), [(5, 3), (3, 0), (1, 1), (4, 4)])
def test_gradients_are_exact(order, temperature, n, m):
    label_log_prob, target, masks = example(0, n, m)
    target[:, 1:2] = target[:, :1]  # with a repeated label
    loss = TransportLoss(order=order, temperature=temperature)

    def value(labels: Tensor) -> Tensor:
        spelled = loss(labels, target, **masks).value
        return spelled[spelled < INF]

    label_log_prob.requires_grad_()
    assert gradcheck(value, (label_log_prob,), atol=1e-8, rtol=1e-5)
    assert gradcheck(lambda x: loss(x.log_softmax(2), target, **masks).mean, (label_log_prob,), fast_mode=True)


@given(st.integers(0, 999), st.integers(2, 12), st.integers(0, 6), st.sampled_from([0.5, 1.0]))
@settings(max_examples=40, deadline=None)
def test_a_soft_plan_shares_each_slot_between_targets_and_void(seed, n, m, temperature):
    label_log_prob, target, masks = example(seed, n, m)
    loss = TransportLoss(order="soft", temperature=temperature, iterations=200)
    spelling = loss(label_log_prob, target, **masks)
    possible = masks["target_mask"].sum(1) <= masks["slot_mask"].sum(1)
    assert spelling.value.isfinite().equal(possible)
    assert (spelling.plan >= 0).all()
    assert (spelling.plan.sum(2) <= 1 + 1e-9).all()
    assert spelling.plan[~(masks["slot_mask"][:, :, None] & masks["target_mask"][:, None, :])].eq(0).all()
    roomy = 2 * masks["target_mask"].sum(1) <= masks["slot_mask"].sum(1)  # elsewhere it takes Sinkhorn longer
    torch.testing.assert_close(spelling.plan.sum(1)[roomy], masks["target_mask"].double()[roomy], rtol=0, atol=0.01)


def test_the_edge_term_puts_a_soft_plan_in_order():
    # Slots say a or b with equal probability: only order tells that the first spells a and the second b.
    label_log_prob = torch.tensor([[[1e-9, 0.5, 0.5], [1e-9, 0.5, 0.5]]], dtype=torch.float64).log()
    target = torch.tensor([[1, 2]])
    ordered = TransportLoss(order="soft").forward(label_log_prob, target).plan[0]
    anyhow = TransportLoss(order="soft", weight=0.0).forward(label_log_prob, target).plan[0]
    torch.testing.assert_close(ordered, torch.eye(2, dtype=torch.float64), rtol=0, atol=0.05)
    torch.testing.assert_close(anyhow, torch.full((2, 2), 0.5, dtype=torch.float64), rtol=0, atol=0.01)


def test_disorder_is_the_gradient_of_the_edge_term():
    torch.manual_seed(0)
    plan = torch.rand(2, 5, 4, dtype=torch.float64, requires_grad=True)
    term = sum(plan[:, u, j] @ plan[:, t, j + 1] for j in range(3) for t in range(5) for u in range(t, 5))
    torch.testing.assert_close(transport_file._disorder(plan), *torch.autograd.grad(term, plan))


def test_a_slot_that_is_not_there_may_stand_anywhere():
    label_log_prob, target, _ = example(8, 6, 3)
    slot_mask = torch.tensor([[True, True, False, True, False, True]]).expand(3, 6)
    holey = torch.where(slot_mask[:, :, None], label_log_prob, float("nan"))
    for order in ORDERS:
        spelling = TransportLoss(order=order)(holey, target, slot_mask=slot_mask)
        without = TransportLoss(order=order)(label_log_prob[:, [0, 1, 3, 5]], target)
        torch.testing.assert_close(spelling.value, without.value, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(spelling.plan[:, [0, 1, 3, 5]], without.plan, rtol=1e-12, atol=1e-12)


def test_a_long_suffix_may_grow_at_the_end():
    # The first two slots are sure of a and b; the other twenty know that they are c, d, ... or void.
    target = torch.arange(1, 9)[None]
    label_log_prob = torch.full((1, 22, 9), 1e-4, dtype=torch.float64)
    for slot, label in [(0, 1), (1, 2), *((15 + j, 3 + j) for j in range(6))]:
        label_log_prob[0, slot, label] = 1
    for slot in range(2, 15):
        label_log_prob[0, slot, 0] = 1
    label_log_prob[0, 21, 0] = 1
    spoken = label_log_prob.log().log_softmax(2)
    for order in ORDERS:
        plan = TransportLoss(order=order)(spoken, target).plan[0]
        assert plan.argmax(0).tolist() == [0, 1, 15, 16, 17, 18, 19, 20], order


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rubbish", [float("nan"), INF])
def test_padding_and_batch_change_nothing(order, rubbish):
    label_log_prob, target, masks = example(3, 5, 3)
    loss = TransportLoss(order=order)
    together = loss(label_log_prob, target, **masks)
    wide = torch.full((3, 8, 4), rubbish, dtype=torch.float64)
    wide[:, :5] = torch.where(masks["slot_mask"][:, :, None], label_log_prob, rubbish)
    wide.requires_grad_()
    padded = loss(
        wide,
        torch.nn.functional.pad(target, (0, 2), value=-7),
        slot_mask=torch.nn.functional.pad(masks["slot_mask"], (0, 3)),
        target_mask=torch.nn.functional.pad(masks["target_mask"], (0, 2)),
    )
    torch.testing.assert_close(padded.value, together.value, rtol=0, atol=1e-12)
    torch.testing.assert_close(padded.plan[:, :5, :3], together.plan, rtol=0, atol=1e-12)
    padded.mean.backward()
    assert wide.grad.isfinite().all()
    assert wide.grad[:, 5:].eq(0).all()
    for item in range(3):
        only = slice(item, item + 1)
        alone = loss(label_log_prob[only], target[only], **{name: mask[only] for name, mask in masks.items()})
        torch.testing.assert_close(alone.value, together.value[only], rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_a_target_that_cannot_be_spelled_is_infinite_without_gradient(order):
    label_log_prob, target, masks = example(1, 4, 4)
    label_log_prob.requires_grad_()
    masks["slot_mask"][0, 3] = False  # three slots for four targets
    spelling = TransportLoss(order=order)(label_log_prob, target, **masks)
    assert spelling.value.isfinite().tolist() == [False, True, True]
    assert spelling.plan[0].eq(0).all()
    spelling.value.sum().backward()
    assert label_log_prob.grad.isfinite().all()
    assert label_log_prob.grad[0].eq(0).all()
    assert label_log_prob.grad[1].ne(0).any()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("temperature", [1.0, 1e-3])
@pytest.mark.parametrize("sharpness", [1.0, 1e3])
def test_extremes_stay_finite(order, temperature, sharpness):
    label_log_prob, target, masks = example(6, 6, 3, sharpness)
    label_log_prob[0, 2:, target[0, 0]] = -INF
    label_log_prob[1, :, 0] = -INF
    label_log_prob = label_log_prob.float().requires_grad_()
    spelling = TransportLoss(order=order, temperature=temperature)(label_log_prob, target, **masks)
    assert not spelling.value.isnan().any()
    assert spelling.plan.isfinite().all()
    spelling.mean.backward()
    assert label_log_prob.grad.isfinite().all()


def test_the_most_probable_labels_are_spelled_without_voids():
    chosen = torch.tensor([[0, 2, 0, 2, 1], [0, 0, 0, 0, 3], [1, 1, 1, 1, 1]])
    label_log_prob = torch.nn.functional.one_hot(chosen, 4).float()
    slot_mask = torch.tensor([[True] * 5, [True, True, True, True, False], [True, True, False, False, False]])
    labels, length = most_probable_labels(label_log_prob, slot_mask=slot_mask)
    assert labels.tolist() == [[2, 2, 1], [0, 0, 0], [1, 1, 0]]
    assert length.tolist() == [3, 0, 2]
    assert most_probable_labels(label_log_prob[:, :0])[0].shape == (3, 0)


def test_wrong_arguments_are_met_by_a_sentence():
    loss, labels, target = TransportLoss(), torch.zeros(2, 3, 4), torch.ones(2, 2, dtype=torch.long)
    for options, message in (
        ({"order": "some"}, "unknown order 'some': choose one of exact, soft"),
        ({"temperature": 0.0}, "temperature must be above 0, but is 0.0"),
        ({"weight": -1.0}, "weight must not be negative"),
        ({"rounds": 0}, "rounds and iterations must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            TransportLoss(**options)
    with pytest.raises(ValueError, match="has no use for edge_log_prob"):
        loss(labels, target, edge_log_prob=labels)
    with pytest.raises(ValueError, match=r"label_log_prob must be floats \[B, n, V\]"):
        loss(labels[0], target)
    with pytest.raises(ValueError, match=r"target must be int64 \[2, m\], but is torch.int64 \[1, 2\]"):
        loss(labels, target[:1])
    with pytest.raises(ValueError, match=r"but is torch\.float32"):
        loss(labels, target.float())
    with pytest.raises(ValueError, match=r"slot_mask must be bool \[2, 3\]"):
        loss(labels, target, slot_mask=target > 0)
    with pytest.raises(ValueError, match=r"target_mask must be bool \[2, 2\]"):
        loss(labels, target, target_mask=target)
    with pytest.raises(ValueError, match=r"target labels must be in 1..3 \(0 is the void\), but one is 0"):
        loss(labels, target * 0)
    with pytest.raises(ValueError, match="but one is 4"):
        loss(labels, target * 4)
    with pytest.raises(ValueError, match="padding at the end"):
        loss(labels, target, target_mask=torch.tensor([[False, True], [True, True]]))
    assert loss(labels, target * 0, target_mask=target == 0).value.tolist() == [0, 0]


def test_a_batch_of_nothing_is_fine():
    for order in ORDERS:
        loss = TransportLoss(order=order)
        assert loss(torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.long)).value.tolist() == [0, 0]
        assert loss(torch.zeros(2, 0, 4), torch.ones(2, 1, dtype=torch.long)).value.tolist() == [INF, INF]
        assert loss(torch.zeros(0, 3, 4), torch.zeros(0, 2, dtype=torch.long)).mean == 0
