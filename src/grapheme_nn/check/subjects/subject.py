"""A gradient-check case: a function of named tensors, and how its gradient is verified."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.operator import as_graph


class Case(NamedTuple):
    """A function, the tensors it is differentiated in, and what differences are taken of where that is another one."""

    fn: Callable[..., Any]
    inputs: Mapping[str, Tensor]
    surrogate: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Subject:
    """Something that has a gradient. `make` is called with a seeded random state."""

    group: str  # what it is part of, such as "Merge"
    name: str  # which of them, such as "soft, on a chain"
    make: Callable[[], Case]


CHAIN = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
DAG = torch.tensor([[0, 0, 1, 2, 2, 3, 4, 0], [1, 2, 3, 3, 4, 5, 5, 1]])  # a diamond and more; one edge twice
TYPES = torch.tensor([1, 2, 1, 2, 0, 1, 2, 2])  # of its edges: the one that is there twice has two
UNDIRECTED = torch.tensor([[0, 1, 2, 3, 2, 1, 4, 2, 3, 0], [1, 2, 3, 4, 0, 0, 3, 1, 2, 2]])  # a triangle with a tail
BATCH = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1])
BATCH_EDGES = torch.cat([DAG, torch.tensor([[6, 7], [7, 8]])], dim=1)


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def weights_of(edge_index: Tensor) -> Tensor:
    """Random weights of edges, [e], positive."""
    return (torch.rand(edge_index.size(1), dtype=torch.float64) + 0.5).requires_grad_()


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Its parameters as inputs, moved off the round numbers that some of them begin with."""
    own = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    return {name: (value + 0.1 * torch.randn_like(value)).requires_grad_() for name, value in own.items()}


def of_module(module: nn.Module, *fixed: Any, **inputs: Tensor) -> Case:
    """A module as a function of its inputs, which come first, and its parameters."""
    module = module.double()

    def fn(**tensors: Tensor) -> Any:
        arguments = [tensors.pop(name) for name in inputs]
        return torch.func.functional_call(module, tensors, (*arguments, *fixed))

    return Case(fn, {**inputs, **parameters_of(module)})


def of_morph(
    module: nn.Module,
    edge_index: Tensor,
    batch: Tensor | None = None,
    channels: int = 3,
    edge_type: Tensor | None = None,
) -> Case:
    """A morph as a function of features, edge weights and its parameters."""
    module = module.double()

    def fn(x: Tensor, edge_weight: Tensor, **parameters: Tensor) -> Morph:
        graph = as_graph(x, edge_index, edge_weight, batch, edge_type=edge_type)
        morph: Morph = torch.func.functional_call(module, parameters, (graph,))
        return morph

    n = int(edge_index.max()) + 1
    return Case(fn, {"x": doubles(n, channels), "edge_weight": weights_of(edge_index), **parameters_of(module)})
