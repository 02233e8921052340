import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from grapheme_nn.loss import sinkhorn
from grapheme_nn.loss.potentials import (
    Costs,
    alternating_sinkhorn,
    averaged_sinkhorn,
    symmetric_sinkhorn,
    transport_plan,
)
from grapheme_nn.loss.sinkhorn import dustbin_sinkhorn


def costs_of(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.rand(*shape, dtype=torch.float64, generator=generator)


def mask_of(sizes: list[int], width: int) -> Tensor:
    return torch.arange(width) < torch.tensor(sizes)[:, None]


def prepared(scaled: Tensor, form: str) -> Costs:
    return Costs(scaled, scaled.detach().neg().exp() if form == "kernel" else None)


@pytest.mark.parametrize("temperature", [0.1, 0.01])  # kernel form, log form
def test_the_plan_is_that_of_pot_after_as_many_iterations(temperature: float) -> None:
    cost = costs_of(3, 4, 6)
    peer = ot.batch.solve_batch(cost, reg=temperature, max_iter=20, tol=0, method="log_sinkhorn").plan
    torch.testing.assert_close(sinkhorn(cost, temperature=temperature), peer, rtol=1e-9, atol=1e-12)


def test_with_a_void_the_plan_is_that_of_pot_on_the_bordered_problem() -> None:
    cost, deletion, insertion = costs_of(1, 3, 5), costs_of(1, 3, seed=1), costs_of(1, 5, seed=2)
    bordered = torch.zeros(4, 6, dtype=torch.float64)
    bordered[:3, :5], bordered[:3, 5], bordered[3, :5] = cost[0], deletion[0], insertion[0]
    source, target = torch.tensor([1.0, 1, 1, 5]).double(), torch.tensor([1.0, 1, 1, 1, 1, 3]).double()
    peer = ot.bregman.sinkhorn_log(source, target, bordered, 0.1, numItermax=5000, stopThr=1e-14)
    ours = sinkhorn(cost, iterations=5000, void=(deletion, insertion))
    torch.testing.assert_close(ours[0], peer[:3, :5], rtol=1e-8, atol=1e-10)


def test_at_low_temperature_the_void_takes_what_is_too_dear() -> None:
    cost = torch.tensor([[[0.0, 9.0], [9.0, 9.0]]])  # the second node of either side has no partner worth its cost
    result = sinkhorn(cost, temperature=0.05, iterations=200, void=(torch.ones(1, 2), torch.ones(1, 2)))
    torch.testing.assert_close(result, torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("with_void", [False, True])
@pytest.mark.parametrize("temperature", [0.1, 0.01])
def test_gradients_of_the_plan_are_exact(temperature: float, with_void: bool) -> None:
    cost = costs_of(4, 3, 4).requires_grad_()
    masks = mask_of([3, 2, 0, 1], 3), mask_of([4, 1, 2, 0], 4)
    void = (costs_of(4, 3, seed=1).requires_grad_(), costs_of(4, 4, seed=2).requires_grad_())
    if with_void:
        assert gradcheck(lambda c, *v: sinkhorn(c, *masks, temperature=temperature, void=v), (cost, *void))
    else:
        assert gradcheck(lambda c: sinkhorn(c, *masks, temperature=temperature), (cost,))


@pytest.mark.parametrize("form", ["kernel", "log"])
def test_every_scheme_has_an_exact_adjoint_in_costs_weights_and_starts(form: str) -> None:
    cost, square = costs_of(2, 3, 4, scale=5).requires_grad_(), costs_of(2, 3, 3, seed=1, scale=5).requires_grad_()
    source, target, row, column = (
        costs_of(2, size, seed=seed).requires_grad_() for seed, size in ((2, 3), (3, 4), (4, 3), (5, 4))
    )
    assert gradcheck(
        lambda c, a, b, v: alternating_sinkhorn(prepared(c, form), a, b, v, 5), (cost, source, target, column)
    )
    assert gradcheck(
        lambda c, *rest: averaged_sinkhorn(prepared(c, form), *rest, 5), (cost, source, target, row, column)
    )
    far = (20 * row.detach() - 10).requires_grad_()  # so that steps come to their limit
    assert gradcheck(
        lambda c, *rest: averaged_sinkhorn(prepared(c, form), *rest, 5), (cost, source, target, far, column)
    )
    assert gradcheck(lambda c, a: symmetric_sinkhorn(prepared(c, form), a, 5), (square, source))
    assert gradcheck(lambda c, *rest: transport_plan(prepared(c, form), *rest), (cost, source, target, row, column))


@pytest.mark.parametrize("form", ["kernel", "log"])
def test_a_node_that_weighs_nothing_has_the_gradient_of_its_weight(form: str) -> None:
    cost, target = costs_of(1, 3, 3, scale=5), torch.ones(1, 3, dtype=torch.float64)

    def value(weight: Tensor) -> Tensor:
        source = torch.cat([weight, 3 - weight.sum(1, keepdim=True)], 1)
        row, column = alternating_sinkhorn(prepared(cost, form), source, target, torch.zeros_like(target), 5)
        return (source * row).sum() + column.sum()

    weight = torch.tensor([[0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(weight), weight)
    step = torch.tensor([[1e-6, 0.0]], dtype=torch.float64)
    with torch.no_grad():  # to one side: a weight is not negative
        numerical = (-3 * value(weight) + 4 * value(weight + step) - value(weight + 2 * step)) / 2e-6
    torch.testing.assert_close(slope[0, 0], numerical, rtol=1e-5, atol=1e-7)


def test_kernel_form_and_log_form_agree_where_both_are_valid() -> None:
    scaled, weights = costs_of(2, 5, 6, scale=39), (torch.ones(2, 5).double(), torch.rand(2, 6).double())
    start = torch.zeros(2, 6).double()
    for ours, other in zip(
        alternating_sinkhorn(prepared(scaled, "kernel"), *weights, start, 20),
        alternating_sinkhorn(prepared(scaled, "log"), *weights, start, 20),
        strict=True,
    ):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
    with_void=st.booleans(),
    temperature=st.sampled_from([0.001, 0.1, 1.0]),
    filling=st.sampled_from([float("inf"), -float("inf"), float("nan"), 0.0]),
)
def test_a_plan_does_not_depend_on_batch_or_padding(
    sizes: list[tuple[int, int]], with_void: bool, temperature: float, filling: float
) -> None:
    n, m = max(size[0] for size in sizes) + 1, max(size[1] for size in sizes) + 2
    cost, deletion, insertion = (
        costs_of(len(sizes), n, m),
        costs_of(len(sizes), n, seed=1),
        costs_of(len(sizes), m, seed=2),
    )
    source, target = mask_of([size[0] for size in sizes], n), mask_of([size[1] for size in sizes], m)
    kept = source[:, :, None] & target[:, None, :]
    padded = torch.where(kept, cost, filling).requires_grad_()
    void = (deletion, insertion) if with_void else None
    batch = sinkhorn(padded, source, target, temperature=temperature, void=void)
    (grad,) = torch.autograd.grad(batch.square().sum(), padded)
    assert grad.isfinite().all()
    assert (batch[~kept] == 0).all()
    assert (grad[~kept] == 0).all()
    for index, (rows, columns) in enumerate(sizes):
        single = sinkhorn(
            cost[index : index + 1, :rows, :columns],
            temperature=temperature,
            void=(deletion[index : index + 1, :rows], insertion[index : index + 1, :columns]) if with_void else None,
        )
        torch.testing.assert_close(batch[index, :rows, :columns], single[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_costs_of_a_thousand_and_a_temperature_of_a_thousandth_stay_finite(dtype: torch.dtype) -> None:
    cost = (1e3 * costs_of(2, 4, 5)).to(dtype).requires_grad_()
    result = sinkhorn(cost, temperature=1e-3)
    (grad,) = torch.autograd.grad((result * cost).sum(), cost)
    assert result.isfinite().all()
    assert grad.isfinite().all()
    # In single precision a number near 10^6, such as a potential here, is known to a sixteenth.
    torch.testing.assert_close(result.sum(1), torch.full((2, 5), 0.2, dtype=dtype), rtol=0.1, atol=0)


@settings(deadline=None, max_examples=40)
@given(
    layout=st.sampled_from(["transposed", "every other", "expanded"]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    temperature=st.sampled_from([0.001, 0.1]),
    with_void=st.booleans(),
)
def test_any_layout_and_type_of_costs_gives_the_same_plan(
    layout: str, dtype: torch.dtype, temperature: float, with_void: bool
) -> None:
    cost = costs_of(2, 3, 1).expand(-1, -1, 4) if layout == "expanded" else costs_of(2, 3, 4)
    sides = (costs_of(2, 1, seed=1).expand(-1, 3), costs_of(2, 4, seed=2))
    cost, deletion, insertion = (part.to(dtype) for part in (cost, *sides))
    masks = mask_of([3, 2], 3), mask_of([4, 1], 4)
    exact = [part.double().contiguous() for part in (cost, deletion, insertion)]
    if layout == "expanded":
        cost = cost[:, :, :1].expand(-1, -1, 4)
    else:
        cost = cost.mT.contiguous().mT if layout == "transposed" else cost.repeat_interleave(2, 2)[:, :, ::2]
    cost.requires_grad_()
    void, plain = ((deletion, insertion), tuple(exact[1:])) if with_void else (None, None)
    ours = sinkhorn(cost, *masks, temperature=temperature, void=void)
    tolerance = {"rtol": 2e-3, "atol": 2e-3}
    torch.testing.assert_close(
        ours.double(), sinkhorn(exact[0], *masks, temperature=temperature, void=plain), **tolerance
    )
    binned = dustbin_sinkhorn(cost, deletion, insertion, *masks, iterations=5)
    for one, other in zip(binned, dustbin_sinkhorn(*exact, *masks, iterations=5), strict=True):
        torch.testing.assert_close(one.double(), other, **tolerance)
    (ours.square().sum() + binned.value.sum()).backward()
    assert cost.grad is not None
    assert cost.grad.isfinite().all()


def test_a_constant_on_all_costs_changes_nothing() -> None:
    cost = costs_of(2, 3, 4)
    torch.testing.assert_close(sinkhorn(cost + 1e3), sinkhorn(cost), rtol=1e-8, atol=1e-10)


def test_autocast_does_not_reach_the_plan() -> None:
    cost = torch.rand(2, 3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = sinkhorn(cost)
    torch.testing.assert_close(result, sinkhorn(cost), rtol=0, atol=0)


def test_a_plan_without_nodes_is_empty() -> None:
    assert sinkhorn(torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    assert sinkhorn(torch.zeros(2, 3, 0), void=(torch.ones(2, 3), torch.ones(2, 0))).shape == (2, 3, 0)
    assert sinkhorn(torch.zeros(0, 3, 3)).shape == (0, 3, 3)


def test_the_adjoint_saves_less_than_a_fifth_of_what_unrolled_autograd_saves() -> None:
    cost = torch.rand(8, 32, 32, requires_grad=True)
    ours = saved_bytes(lambda: sinkhorn(cost))
    peer = saved_bytes(
        lambda: ot.batch.solve_batch(cost, reg=0.1, max_iter=20, tol=0, method="log_sinkhorn", grad="autodiff").plan
    )
    assert ours < peer / 5


def saved_bytes(run: object) -> int:
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run()  # type: ignore[operator]
    assert kept.requires_grad
    return sum(saved.values())


@pytest.mark.parametrize(
    ("cost", "options", "message"),
    [
        (torch.zeros(2, 3), {}, r"shape \[B, n, m\], but is torch.float32 \[2, 3\]"),
        (torch.zeros(1, 2, 3, dtype=torch.long), {}, "torch.int64"),
        (torch.full((1, 2, 3), torch.nan), {}, "finite"),
        (torch.full((1, 2, 3), torch.inf), {}, "finite"),
        (torch.zeros(1, 2, 3), {"temperature": 0.0}, "temperature must be positive and finite, but is 0.0"),
        (torch.zeros(1, 2, 3), {"iterations": 0}, "iterations must be a whole number, at least 1, but is 0"),
        (torch.zeros(1, 2, 3), {"source_mask": torch.ones(1, 3).bool()}, r"source_mask must be bool of shape \[1, 2\]"),
        (torch.zeros(1, 2, 3), {"target_mask": torch.ones(1, 3)}, "target_mask must be bool"),
        (torch.zeros(1, 2, 3), {"void": (torch.zeros(1, 3), torch.zeros(1, 3))}, "deletion costs"),
        (torch.zeros(1, 2, 3), {"source_mask": torch.ones(1, 2, device="meta").bool()}, "source_mask is on meta"),
        (torch.zeros(1, 2, 3), {"void": (torch.zeros(1, 2), torch.zeros(1, 3, device="meta"))}, "insertion .* on meta"),
    ],
)
def test_what_cannot_be_solved_is_refused_in_a_sentence(cost: Tensor, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sinkhorn(cost, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["kernel", "log"])
def test_two_averaged_runs_never_lower_the_dual_value(form: str) -> None:
    cost, weights = costs_of(8, 5, 6, scale=12), (costs_of(8, 5, seed=1), costs_of(8, 6, seed=2))
    row, column = 20 * costs_of(8, 5, seed=3) - 10, 20 * costs_of(8, 6, seed=4) - 10  # far off, so that steps are large

    def value(u: Tensor, v: Tensor) -> Tensor:
        mass = transport_plan(prepared(cost, form), *weights, u, v).sum((1, 2))
        return (weights[0] * u).sum(1) + (weights[1] * v).sum(1) - mass

    start = value(row, column)
    for iterations in range(1, 24):
        assert (value(*averaged_sinkhorn(prepared(cost, form), *weights, row, column, iterations)) >= start).all()


def test_twenty_iterations_of_two_runs_come_as_near_as_twenty_of_one() -> None:
    cost, weights = costs_of(32, 7, 7, scale=20), (torch.ones(32, 7).double(), torch.ones(32, 7).double())
    start = torch.zeros(32, 7).double()
    exact = transport_plan(
        prepared(cost, "log"), *weights, *alternating_sinkhorn(prepared(cost, "log"), *weights, start, 5000)
    )
    met = transport_plan(
        prepared(cost, "log"), *weights, *averaged_sinkhorn(prepared(cost, "log"), *weights, start, start, 20)
    )
    one = transport_plan(
        prepared(cost, "log"), *weights, *alternating_sinkhorn(prepared(cost, "log"), *weights, start, 20)
    )
    assert (met - exact).abs().mean() < (one - exact).abs().mean()


def dustbin_case(scale: float, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Five pairs of up to 4 rows and 3 columns: padding, no rows, no columns."""
    cost, deletion, insertion = (
        costs_of(5, *shape, seed=seed + at, scale=scale) for at, shape in enumerate(((4, 3), (4,), (3,)))
    )
    return cost, deletion, insertion, mask_of([4, 2, 0, 3, 1], 4), mask_of([3, 3, 2, 0, 1], 3)


def free_energy(cost: Tensor, deletion: Tensor, insertion: Tensor, plan: Tensor) -> Tensor:
    """F of the documentation at the deletions and insertions that a plan leaves, for one pair without padding."""
    deleted, inserted = 1 - plan.sum(1), 1 - plan.sum(0)
    entries = torch.cat([plan.flatten(), deleted, inserted])
    costs = torch.cat([cost.flatten(), deletion, insertion])
    return (entries * costs).sum() + (entries.xlogy(entries) - entries).sum() + sum(plan.shape)


@pytest.mark.parametrize("iterations", [1, 2, 30])
@pytest.mark.parametrize("scale", [3.0, 60.0, 1e4])
def test_a_dustbin_follows_its_half_steps(scale: float, iterations: int) -> None:
    cost, deletion, insertion, rows, columns = dustbin_case(scale)
    ours = dustbin_sinkhorn(cost, deletion, insertion, rows, columns, iterations=iterations)
    for b in range(5):
        n, m = int(rows[b].sum()), int(columns[b].sum())
        c, d, e, v = cost[b, :n, :m], deletion[b, :n], insertion[b, :m], torch.zeros(m).double()
        for _ in range(iterations):
            u = -torch.logaddexp((v - c).logsumexp(1) if m else torch.full((n,), -torch.inf).double(), -d)
            v = -torch.logaddexp((u[:, None] - c).logsumexp(0) if n else torch.full((m,), -torch.inf).double(), -e)
        plan = (u[:, None] + v - c).exp()
        value = u.sum() + v.sum() - plan.sum() - (u - d).exp().sum() - (v - e).exp().sum() + n + m
        assert float(ours.plan[b].sum() - ours.plan[b, :n, :m].sum()) == 0
        for one, other in ((ours.plan[b, :n, :m], plan), (ours.row[b, :n], u), (ours.column[b, :m], v)):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ours.value[b], value, rtol=1e-10, atol=1e-10)
        assert float(ours.row[b, n:].abs().sum() + ours.column[b, m:].abs().sum()) == 0


def test_the_value_of_a_dustbin_bounds_the_free_energy_of_every_plan_and_meets_the_least() -> None:
    cost, deletion, insertion, _, _ = dustbin_case(3.0)
    masks = mask_of([4] * 5, 4), mask_of([3] * 5, 3)
    last = torch.full((5,), -torch.inf, dtype=torch.float64)
    for iterations in (1, 2, 5, 2000):
        solved = dustbin_sinkhorn(cost, deletion, insertion, *masks, iterations=iterations)
        assert (solved.value >= last - 1e-12).all()  # no half step lowers it
        last = solved.value
        for seed in range(20):
            plan = costs_of(5, 4, 3, seed=seed) / 4
            for b in range(5):
                assert free_energy(cost[b], deletion[b], insertion[b], plan[b]) > solved.value[b]
    for b in range(5):
        least = free_energy(cost[b], deletion[b], insertion[b], solved.plan[b])
        torch.testing.assert_close(solved.value[b], least, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("scale", "iterations"), [(3.0, 1), (3.0, 6), (60.0, 6), (1e4, 6)])
def test_gradients_through_a_dustbin_are_exact(scale: float, iterations: int) -> None:
    cost, deletion, insertion, *masks = dustbin_case(scale)
    if scale == 1e4:  # some entries that share a row or a column, so that the plan is not all 0 and 1
        cost, deletion, insertion = (part - part % 5e3 + part % 1 for part in (cost, deletion, insertion))
    start = costs_of(5, 4, seed=7), costs_of(5, 3, seed=8, scale=scale)
    inputs = [part.requires_grad_() for part in (cost, deletion, insertion, start[1])]

    def solve(cost: Tensor, deletion: Tensor, insertion: Tensor, column: Tensor) -> tuple[Tensor, ...]:
        first = start[0], column
        return tuple(dustbin_sinkhorn(cost, deletion, insertion, *masks, iterations=iterations, start=first))

    assert gradcheck(solve, inputs, eps=1e-6, atol=2e-5)


def test_a_dustbin_that_starts_where_another_ended_goes_on_from_there() -> None:
    cost, deletion, insertion, *masks = dustbin_case(6.0)
    early = dustbin_sinkhorn(cost, deletion, insertion, *masks, iterations=4)
    late = dustbin_sinkhorn(cost, deletion, insertion, *masks, iterations=3, start=(early.row, early.column))
    whole = dustbin_sinkhorn(cost, deletion, insertion, *masks, iterations=7)
    for one, other in zip(late, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("filling", [torch.inf, -torch.inf, torch.nan])
def test_nothing_in_padding_reaches_a_dustbin(filling: float) -> None:
    cost, deletion, insertion, rows, columns = dustbin_case(6.0)
    kept = rows[:, :, None] & columns[:, None, :]
    clean = dustbin_sinkhorn(cost, deletion, insertion, rows, columns, iterations=5)
    inputs = [
        torch.where(mask, part, filling).float().requires_grad_()
        for part, mask in ((cost, kept), (deletion, rows), (insertion, columns))
    ]
    filled = dustbin_sinkhorn(*inputs, rows, columns, iterations=5)
    assert filled.plan.dtype == torch.float32
    for one, other in zip(filled, clean, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    grads = torch.autograd.grad(filled.value.sum() + filled.plan.square().sum(), inputs)
    for grad, mask in zip(grads, (kept, rows, columns), strict=True):
        assert grad.isfinite().all()
        assert (grad[~mask] == 0).all()
    with pytest.raises(ValueError, match="costs must be finite where masks keep them"):
        dustbin_sinkhorn(inputs[0], deletion, insertion, ~rows, ~columns, iterations=5)
    with pytest.raises(ValueError, match=r"start must have the shapes \[5, 4\] and \[5, 3\]"):
        dustbin_sinkhorn(
            cost, deletion, insertion, rows, columns, iterations=5, start=(torch.zeros(5, 3), torch.zeros(5, 3))
        )
