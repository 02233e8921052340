"""A sum over walks is held against all walks written out, on DAGs small enough to do so."""

from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from grapheme_nn.nn.pointer import NextPointer, band, band_log_softmax
from grapheme_nn.objective import path as path_file
from grapheme_nn.objective.path import Path, best_path, path_alignment

INF = float("inf")


def walks(n: int, reach: int, length: int | None = None):
    """Every walk through n slots as a tuple of vertices after the beginning."""
    for count in range(n + 1) if length is None else [length]:
        for walk in combinations(range(1, n + 1), count):
            if all(after - before <= reach for before, after in zip((0, *walk), walk, strict=False)):
                yield walk


def walk_score(walk: tuple[int, ...], labels: list[int], label_log_prob: list, edges: list) -> float:
    score, here = 0.0, 0
    for vertex, label in zip(walk, labels, strict=True):
        score += edges[here][vertex - here] + label_log_prob[vertex - 1][label]
        here = vertex
    return score + edges[here][0]


def enumerated(label_log_prob: Tensor, edges: Tensor, target: list[int], n: int) -> tuple[Tensor, Tensor]:
    """Value and plan [n, m] of one item from all its walks."""
    plan = torch.zeros(label_log_prob.size(0), len(target), dtype=torch.float64)
    found = list(walks(n, edges.size(1) - 1, len(target)))
    if not found:
        return torch.tensor(INF, dtype=torch.float64), plan
    spoken, ways = label_log_prob.tolist(), edges.tolist()
    scores = torch.tensor([walk_score(walk, target, spoken, ways) for walk in found], dtype=torch.float64)
    for walk, probability in zip(found, scores.softmax(0), strict=True):
        for j, vertex in enumerate(walk):
            plan[vertex - 1, j] += probability
    return -scores.logsumexp(0), plan


def label_of(label_log_prob: Tensor, target: Tensor, slot_mask: Tensor, target_mask: Tensor) -> Tensor:
    """The log-probability that slot i spells target j, [B, s, m], -inf in the padding of either."""
    label = label_log_prob.gather(2, target[:, None, :].expand(-1, label_log_prob.size(1), -1))
    return torch.where(slot_mask[:, :, None] & target_mask[:, None, :], label, -INF)


def aligned(label_log_prob, target, *, slot_mask, target_mask, edge_log_prob):
    label = label_of(label_log_prob, target, slot_mask, target_mask)
    return path_alignment(label, edge_log_prob, target_mask.sum(1))


def example(seed: int, n: int, m: int, reach: int, sharpness: float = 1.0):
    """Three items with n, n - 1 and 1 slots, and m, m - 1 and 1 targets."""
    generator = torch.Generator().manual_seed(seed)
    kind = {"generator": generator, "dtype": torch.float64}
    slot_mask = torch.arange(n) < torch.tensor([[n], [n - 1], [1]])
    target_mask = torch.arange(m) < torch.tensor([[m], [max(m - 1, 0)], [min(m, 1)]])
    label_log_prob = (sharpness * torch.randn(3, n, 4, **kind)).log_softmax(2)
    edges = band_log_softmax(sharpness * torch.randn(3, n + 1, 1 + reach, **kind), slot_mask)
    target = torch.randint(1, 4, (3, m), generator=generator)
    return label_log_prob, target, {"slot_mask": slot_mask, "target_mask": target_mask, "edge_log_prob": edges}


@given(
    st.integers(0, 999), st.integers(1, 6), st.integers(0, 6), st.integers(1, 7), st.sampled_from([1.0, 20.0, 400.0])
)
@settings(max_examples=60, deadline=None)
def test_value_and_plan_are_those_of_all_walks_written_out(seed, n, m, reach, sharpness):
    label_log_prob, target, rest = example(seed, n, m, reach, sharpness)
    found = aligned(label_log_prob, target, **rest)
    for item in range(3):
        slots, length = rest["slot_mask"][item].sum(), rest["target_mask"][item].sum()
        labels = target[item, :length].tolist()
        value, plan = enumerated(label_log_prob[item], rest["edge_log_prob"][item], labels, int(slots))
        torch.testing.assert_close(found.value[item], value, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found.plan[item, :, :length], plan, rtol=1e-10, atol=1e-10)
        assert found.plan[item, :, length:].eq(0).all()


@given(st.integers(0, 999), st.integers(1, 7), st.integers(0, 7), st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_logarithms_and_probabilities_agree(seed, n, m, reach):
    label_log_prob, target, rest = example(seed, n, m, reach)
    label = label_of(label_log_prob, target, rest["slot_mask"], rest["target_mask"])
    given_both = label, rest["edge_log_prob"], rest["target_mask"].sum(1)
    *fast, trusted = path_file._by_probability(*given_both)
    slow = path_file._by_logarithm(*given_both)
    assert trusted.equal(fast[0] < INF)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_walk_that_probabilities_would_lose_is_still_found():
    # The only way to spell three labels with three slots has a first step of e^-1000; ways that cannot end are likely.
    label = torch.full((1, 3, 3), -0.5, dtype=torch.float64)
    label[0, 0] = -1000
    edges = torch.full((1, 4, 4), -1.0, dtype=torch.float64)
    found = path_alignment(label, edges, torch.tensor([3]))
    torch.testing.assert_close(found.value, torch.tensor([1005.0], dtype=torch.float64))
    torch.testing.assert_close(found.plan[0], torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize(("n", "m", "reach"), [(5, 3, 2), (3, 2, 5), (4, 0, 2), (1, 1, 1), (4, 4, 4)])
@pytest.mark.parametrize("by", ["probability", "logarithm"])
def test_gradients_are_exact(n, m, reach, by, monkeypatch):
    if by == "logarithm":
        monkeypatch.setattr(
            path_file, "_posterior", lambda label, edge, length, _: path_file._by_logarithm(label, edge, length)
        )
    label_log_prob, target, rest = example(0, n, m, reach)
    rest.pop("edge_log_prob")
    torch.manual_seed(0)
    edges = torch.randn(3, n + 1, 1 + reach, dtype=torch.float64, requires_grad=True)

    def value(labels: Tensor, edges: Tensor) -> Tensor:
        spelled = aligned(labels, target, edge_log_prob=edges, **rest).value
        return spelled[spelled < INF]

    def mean(labels: Tensor, edges: Tensor) -> Tensor:
        return aligned(labels, target, edge_log_prob=band_log_softmax(edges, rest["slot_mask"]), **rest).mean

    label_log_prob.requires_grad_()
    assert gradcheck(value, (label_log_prob, edges))
    assert gradcheck(mean, (label_log_prob, edges), fast_mode=True)


def test_a_target_that_cannot_be_spelled_is_infinite_without_gradient():
    label_log_prob, target, rest = example(1, 4, 4, 4)
    label_log_prob.requires_grad_()
    rest["slot_mask"][0, 3] = False  # three slots for four targets
    found = aligned(label_log_prob, target, **rest)
    assert found.value.tolist()[0] == INF
    assert found.plan[0].eq(0).all()
    assert found.mean.isfinite()
    found.value.sum().backward()
    assert label_log_prob.grad.isfinite().all()
    assert label_log_prob.grad[0].eq(0).all()
    assert label_log_prob.grad[1].ne(0).any()


def test_labels_of_probability_zero_are_harmless():
    label_log_prob, target, rest = example(2, 5, 2, 5)
    target[:] = 1
    label_log_prob[0, :, 1] = -INF
    label_log_prob[1, 0, 1] = -INF
    label_log_prob.requires_grad_()
    found = aligned(label_log_prob, target, **rest)
    assert found.value.isfinite().tolist() == [False, True, True]
    found.mean.backward()
    assert label_log_prob.grad.isfinite().all()


def test_what_cannot_be_spelled_leaves_the_other_items_alone():
    # Also where logarithms have to do it: the second item's target has probability 0, the first's e^-900.
    label_log_prob, target, rest = example(7, 4, 3, 4)
    target[:] = 1
    label_log_prob[0, :, 1], label_log_prob[1, :, 1] = -300, -INF
    gradients = []
    for items in (slice(0, 1), slice(0, 3)):
        labels = label_log_prob[items].clone().requires_grad_()
        edges = rest["edge_log_prob"][items].clone().requires_grad_()
        masks = {name: rest[name][items] for name in ("slot_mask", "target_mask")}
        aligned(labels, target[items], edge_log_prob=edges, **masks).value.sum().backward()
        gradients.append((labels.grad[0], edges.grad[0]))
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_padding_and_batch_change_nothing(predict, wanted):
    torch.manual_seed(3)
    slots, targets = [5, 3, 1], [[2, 4, 4], [3, 2], [4]]
    mask = torch.arange(8) < torch.tensor(slots)[:, None]
    labels = torch.randn(3, 8, 5, dtype=torch.float64).log_softmax(2)  # whatever, in the padding too
    edges = band_log_softmax(torch.randn(3, 9, 5, dtype=torch.float64), mask)
    wide = labels[:, :5].clone().requires_grad_()
    ahead = edges[:, :6].clone().requires_grad_()
    together = Path()(predict(wide, slots, ahead), wanted(targets))
    together.value.sum().backward()
    assert together.value.isfinite().all()
    assert wide.grad[1, 3:].eq(0).all()
    assert wide.grad[2, 1:].eq(0).all()
    assert ahead.grad[1, 4:].eq(0).all()
    for item, (count, row) in enumerate(zip(slots, targets, strict=True)):
        own = labels[item : item + 1, :count].clone().requires_grad_()
        alone = Path()(predict(own, [count], edges[item : item + 1, : count + 1]), wanted([row]))
        alone.value.sum().backward()
        torch.testing.assert_close(alone.value[0], together.value[item], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.plan[0], together.plan[item, :count, : len(row)], rtol=0, atol=1e-12)
        torch.testing.assert_close(own.grad[0], wide.grad[item, :count], rtol=0, atol=1e-12)


def test_a_slot_that_is_not_there_may_stand_anywhere():
    label_log_prob, target, rest = example(8, 4, 2, 4)
    slot_mask = torch.tensor([[True, False, True, True]]).expand(3, 4)
    torch.manual_seed(0)
    score = torch.randn(3, 5, 5, dtype=torch.float64)
    score[:, 2] = float("nan")  # vertex 2 is slot 1
    edges = band_log_softmax(score, slot_mask)
    assert not edges.isnan().any()
    found = aligned(label_log_prob, target, slot_mask=slot_mask, target_mask=rest["target_mask"], edge_log_prob=edges)
    walk = best_path(label_log_prob, edges)
    assert found.value.isfinite().all()
    assert found.plan[:, 1].eq(0).all()
    assert all(1 not in slots[:length] for slots, length in zip(walk.slot.tolist(), walk.length.tolist(), strict=True))


def test_half_precision_gives_half_precision_back():
    label_log_prob, target, rest = example(4, 5, 3, 4)
    exact = aligned(label_log_prob, target, **rest)
    rest["edge_log_prob"] = rest["edge_log_prob"].bfloat16()
    rough = aligned(label_log_prob.bfloat16().requires_grad_(), target, **rest)
    assert rough.value.dtype == rough.plan.dtype == torch.bfloat16
    torch.testing.assert_close(rough.value.double(), exact.value, rtol=0.02, atol=0.02)
    rough.mean.backward()


@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_best_path_is_the_best_of_all_walks(seed, n, reach):
    label_log_prob, _, rest = example(seed, n, 2, reach, 2.0)
    edges, slot_mask = rest["edge_log_prob"], rest["slot_mask"]
    found = best_path(label_log_prob, edges)
    for item in range(3):
        label = label_log_prob[item, :, 1:].argmax(1).tolist()
        spoken, ways = label_log_prob[item].tolist(), edges[item].tolist()
        candidates = []
        for walk in walks(int(slot_mask[item].sum()), reach):
            labels = [label[v - 1] + 1 for v in walk]
            candidates.append((walk_score(walk, labels, spoken, ways), walk, labels))
        _, walk, labels = max(candidates)
        length = int(found.length[item])
        assert found.slot[item, :length].tolist() == [v - 1 for v in walk]
        assert found.label[item, :length].tolist() == labels
        assert found.label[item, length:].eq(0).all()
    assert found.label.size(1) == found.length.max()


@pytest.mark.parametrize("together", [1, 4, 256])
def test_scores_of_edges_are_scaled_products_of_a_vertex_and_a_later_slot(monkeypatch, together):
    monkeypatch.setattr("grapheme_nn.nn.pointer._TOGETHER", together)
    generator = torch.Generator().manual_seed(0)
    query, key, end = (torch.randn(*shape, generator=generator) for shape in ((2, 6, 4), (2, 5, 4), (2, 6)))
    for reach in (1, 3, 5, 8):
        score = band(query, key, end, reach)
        assert score.shape == (2, 6, 1 + reach)
        torch.testing.assert_close(score[:, :, 0], end)
        for i, step in product(range(6), range(1, reach + 1)):
            expected = (query[:, i] * key[:, i + step - 1]).sum(1) / 2 if i + step <= 5 else torch.zeros(2)
            torch.testing.assert_close(score[:, i, step], expected)
    inputs = [x.double().requires_grad_() for x in (query, key, end)]
    all_there = torch.ones(2, 5, dtype=torch.bool)
    assert gradcheck(lambda *x: band_log_softmax(band(*x, 2), all_there).exp(), inputs)


def test_edges_are_probabilities_of_what_is_there():
    slot_mask = torch.tensor([[True, True, False], [False, False, False]])
    edges = band_log_softmax(torch.zeros(2, 4, 3), slot_mask).exp()
    torch.testing.assert_close(edges.sum(2), torch.ones(2, 4))
    third = 1 / 3
    torch.testing.assert_close(edges[0, :3], torch.tensor([[third, third, third], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    torch.testing.assert_close(edges[1, 0], torch.tensor([1.0, 0.0, 0.0]))


def test_wrong_use_is_met_by_a_sentence(predict, wanted):
    with pytest.raises(ValueError, match="reach must be at least 1, but is 0"):
        NextPointer(8, 0)
    without_next = predict(torch.zeros(1, 2, 4), [2])
    with pytest.raises(ValueError, match="which slot follows which"):
        Path()(without_next, wanted([[2]]))
    with pytest.raises(ValueError, match="which slot follows which"):
        Path().decode(without_next)


def test_a_batch_of_nothing_is_fine():
    edges = band_log_softmax(torch.zeros(2, 1, 2), torch.zeros(2, 0, dtype=torch.bool))
    found = path_alignment(torch.zeros(2, 0, 0), edges, torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(found.value, torch.zeros(2))
    assert best_path(torch.zeros(2, 0, 4), edges).label.shape == (2, 0)
    empty = path_alignment(torch.zeros(0, 3, 2), torch.zeros(0, 4, 3), torch.zeros(0, dtype=torch.long))
    assert empty.mean == 0
