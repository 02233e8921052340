"""Gradients written by hand, which can be taken once: a second derivative is refused, never wrong."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def once_differentiable(backward: Callable[P, R]) -> Callable[P, R]:
    """The `backward` of an autograd function, refused where a graph of it is asked for.

    torch's decorator of this name only refuses where the gradient that comes in has a gradient itself. That of a plain
    sum has none, and there a second derivative would silently lack the share of this function.
    """

    @wraps(backward)
    def once(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():  # in a backward pass: create_graph=True
            raise RuntimeError(
                f"{backward.__qualname__} is written by hand and has no second derivative: leave out create_graph=True"
            )
        return backward(*args, **kwargs)

    return once


def straight_through(value: Tensor, soft: Tensor) -> Tensor:
    """`value` with the gradient of `soft`, of the same shape (Bengio et al., 2013)."""
    return _StraightThrough.apply(value, soft)  # type: ignore[no-any-return,no-untyped-call]


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, soft: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient
