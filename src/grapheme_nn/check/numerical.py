"""Gradient checking: autograd against central differences in float64, for any function of tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import torch
from torch import Tensor

from grapheme_nn.morph.base import Morph

LIMIT = 1e-6
RANDOM = "two evaluations of the same inputs differ: is dropout left on, or is something sampled without a seed?"
DEAD = "its gradient is zero everywhere: it cannot learn"


@dataclass(frozen=True)
class Compared:
    """The gradient of one tensor, compared with differences."""

    name: str
    error: float  # the worst: max |analytical - numerical| / max(max |analytical|, max |numerical|)
    entries: int  # compared
    zeros: int  # of them, whose analytical gradient is exactly 0
    passed: bool
    note: str = ""  # why not

    def __str__(self) -> str:
        figures = f"{self.error:8.1e} {self.entries:8,} {self.zeros:6,}"
        return f"{self.name:32} {'ok' if self.passed else 'FAIL':4} {figures}  {self.note}".rstrip()


@dataclass(frozen=True)
class GradientCheck:
    """What `check_gradients` found; true where every gradient is right."""

    inputs: tuple[Compared, ...]

    def __bool__(self) -> bool:
        return all(each.passed for each in self.inputs)

    def __str__(self) -> str:
        return "\n".join([f"{'input':32}         error  entries  zeros", *map(str, self.inputs)])

    __repr__ = __str__  # what a failing `assert` shows


def check_gradients(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    surrogate: Callable[..., Any] | None = None,
    limit: float = LIMIT,
) -> GradientCheck:
    """Compares the gradient of `fn` with central differences in float64, for every float input that requires grad.

        assert check_gradients(lambda x: my_operator(x, edge_index), x)

    `inputs` are the arguments of `fn`: one tensor, a sequence, or a mapping of keyword arguments, whose names the
    result then has. Floats of lower precision are converted; call `.double()` on a module inside `fn`. `fn` returns a
    tensor, a `Morph`, or a tuple, list or mapping of them; its outputs are contracted with fixed random weights into
    one number. Where a gradient is by definition that of another function (straight-through), give that function as
    `surrogate`: the differences are then taken of it.

    An input passes with `error <= limit` and a gradient that is not zero everywhere. The error is
    max |analytical - numerical| / max(max |analytical|, max |numerical|), over all entries of the input. Where a step
    of 1e-5 disagrees, a fourth-order one of 1e-4 and one of 1e-7 are tried too and the nearest counts: a right gradient
    agrees with one of them even where the function is steep or the step crosses a kink, a wrong one with none. Exactly
    at a kink there is no gradient to compare with.
    """
    named, call = _named(inputs), _caller(inputs, fn)
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor) and value.requires_grad}
    if not tensors:
        raise ValueError("no input requires a gradient, so there is nothing to check: call requires_grad_() on one")
    for name, value in tensors.items():
        if value.is_complex():
            raise ValueError(f"{name} is complex: give its real and its imaginary part as two inputs")
    fixed = {name: _exact(value) for name, value in named.items() if name not in tensors}
    leaves = {name: value.detach().double().clone().requires_grad_() for name, value in tensors.items()}
    for name, leaf in leaves.items():
        if not leaf.numel():
            raise ValueError(f"{name} is empty, so that there is nothing to compare: give it some entries")
    outputs = flat_outputs(call(**fixed, **leaves))
    if not any(output.numel() for output in outputs):
        raise ValueError("the function returned no floats, so that it has no gradient: let it return what it computes")
    if not all(bool(output.isfinite().all()) for output in outputs):
        raise ValueError("the function's value is not finite at these inputs, so that it has no gradient there")
    with torch.no_grad():
        again = flat_outputs(call(**fixed, **leaves))
    if not same_bits(outputs, again):
        return GradientCheck(tuple(Compared(name, torch.inf, 0, 0, False, RANDOM) for name in leaves))
    measured = call if surrogate is None else _caller(inputs, surrogate)
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.device) for out in outputs]
    total = sum((weight * out).sum() for weight, out in zip(weights, outputs, strict=True) if out.requires_grad)
    analytical = _gradients(total, list(leaves.values()))

    @torch.no_grad()
    def values() -> list[Tensor]:
        return flat_outputs(measured(**fixed, **{name: leaf.detach() for name, leaf in leaves.items()}))

    found = []
    for (name, leaf), gradient in zip(leaves.items(), analytical, strict=True):
        flat = gradient.flatten()
        scale = float(flat.abs().max())
        wanted = flat.tolist()
        numerical = [
            slope(values, weights, leaf, along(leaf, place), expected, 0.1 * limit * scale)
            for place, expected in enumerate(wanted)
        ]
        found.append(compare(name, wanted, numerical, limit))
    return GradientCheck(tuple(found))


def along(leaf: Tensor, place: int) -> Tensor:
    """The direction in which one entry of a tensor grows."""
    direction = torch.zeros_like(leaf, requires_grad=False).flatten()
    direction[place] = 1
    return direction.view_as(leaf)


def slope(
    values: Callable[[], list[Tensor]],
    weights: Sequence[Tensor],
    leaf: Tensor,
    direction: Tensor,
    expected: float,
    near: float,
) -> float:
    """The derivative of sum(weights * values) as `leaf` moves along a direction, the nearest to `expected` of three.

    The second and third are tried only if what came before is not `near` enough. The outputs are subtracted before they
    are added up, which keeps their digits.
    """
    base = leaf.detach().clone()

    def rise(step: float) -> float:
        sides = []
        for sign in (1, -1):
            leaf.data.copy_(base + sign * step * direction)
            sides.append([value.clone() for value in values()])  # one may be the leaf itself, which moves on
        leaf.data.copy_(base)
        if any([value.shape for value in side] != [weight.shape for weight in weights] for side in sides):
            return nan  # a decision changed within the step
        return sum(float((w * (up - down)).sum()) for w, up, down in zip(weights, *sides, strict=True)) / (2 * step)

    attempts: tuple[Callable[[], float], ...] = (
        lambda: rise(1e-5),
        lambda: (4 * rise(1e-4) - rise(2e-4)) / 3,
        lambda: rise(1e-7),
    )
    best = torch.inf
    for attempt in attempts:
        best = min(best, attempt(), key=lambda value: abs(value - expected))
        if abs(best - expected) <= near:
            break
    return best


def compare(
    name: str, analytical: Sequence[float], numerical: Sequence[float], limit: float, scale: float = 0.0
) -> Compared:
    """The figures of one tensor's gradient, entry by entry; `scale` is the largest where that is not among them."""
    scale = scale or max((abs(value) for value in (*analytical, *numerical)), default=0.0)
    apart = [abs(a - b) for a, b in zip(analytical, numerical, strict=True)]
    error = max(apart) / scale if any(apart) else 0.0
    if not all(map(isfinite, apart)):
        error = nan
    zeros = sum(value == 0 for value in analytical)
    dead = zeros == len(analytical)
    right = error <= limit  # which nan is not
    note = DEAD if dead else "" if right else f"its gradient is wrong by {error:.1e}, at most {limit:.0e} is allowed"
    return Compared(name, error, len(analytical), zeros, right and not dead, note)


def flat_outputs(result: Any) -> list[Tensor]:
    """The floating point tensors of a result, in a fixed order."""
    if isinstance(result, Tensor):
        if result.is_complex():
            return flat_outputs([result.real, result.imag])
        return [result.double()] if result.is_floating_point() else []
    if isinstance(result, Morph):
        return flat_outputs(
            [result.x, result.edge_weight, result.assignment.weight, result.losses, result.log_probability]
        )
    if isinstance(result, Mapping):
        return flat_outputs(list(result.values()))
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in flat_outputs(part)]
    if result is None:
        return []
    raise TypeError(
        f"the function returned a {type(result).__name__}: it must return tensors, a Morph, or a tuple of them"
    )


def same_bits(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether two results, float64, are the same to the last bit; nan is the same as nan."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(a.shape == b.shape and _bits(a).equal(_bits(b)) for a, b in pairs)


def _bits(value: Tensor) -> Tensor:
    return value.detach().contiguous().view(torch.int64)


def _gradients(total: Tensor | int, leaves: list[Tensor]) -> list[Tensor]:
    """What reaches each leaf, zeros where nothing does."""
    if not isinstance(total, Tensor):
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))


def _named(inputs: Tensor | Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, Tensor):
        inputs = [inputs]
    if not isinstance(inputs, Sequence):
        raise TypeError(f"inputs must be a tensor, a sequence or a mapping of them, but is a {type(inputs).__name__}")
    return {f"input {place}": value for place, value in enumerate(inputs)}


def _caller(inputs: Tensor | Sequence[Any] | Mapping[str, Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function of named arguments."""
    if isinstance(inputs, Mapping):
        return fn
    count = 1 if isinstance(inputs, Tensor) else len(inputs)
    return lambda **named: fn(*(named[f"input {place}"] for place in range(count)))


def _exact(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
