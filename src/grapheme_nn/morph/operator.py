"""What all operators have in common: what they are called with, and how it becomes a `Morph`."""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from grapheme_nn.dag import check_graph, check_types
from grapheme_nn.graph import count_graphs
from grapheme_nn.morph.base import Morph
from grapheme_nn.probabilities import check_range


class Operator(nn.Module):
    """An operator that changes graphs. Subclasses define `change`, from `Morph` to `Morph` (see `Morph.changed`).

    Called with a `Morph`, a PyG `Data` or `Batch`, or with tensors: x float [n, d], edge_index int [2, e], edge_weight
    [e] (1 each by default), batch int [n] (one graph by default), edge_type int [e] (by default, edges have none).
    """

    channels: int = 0  # d, where the operator was made for a number of channels
    acyclic: bool = False  # whether it takes DAGs alone

    def forward(
        self,
        x: Tensor | Morph | Data,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        edge_type: Tensor | None = None,
    ) -> Morph:
        if isinstance(x, Morph | Data):
            given = {"edge_index": edge_index, "edge_weight": edge_weight, "batch": batch, "edge_type": edge_type}
            for name in (name for name, value in given.items() if value is not None):
                raise TypeError(f"{name} is given beside a {type(x).__name__}, which has its own: set it there")
        graph = x if isinstance(x, Morph) else as_graph(x, edge_index, edge_weight, batch, edge_type=edge_type)
        if self.channels not in (0, graph.channels):
            raise ValueError(f"x has {graph.channels} channels, but this operator was made for {self.channels}")
        any_type = graph is x or torch.is_autocast_enabled(graph.device.type)
        for parameter in () if any_type else self.parameters():
            if parameter.dim() and parameter.dtype != graph.x.dtype:
                raise TypeError(
                    f"x is {graph.x.dtype}, but the weights of this {type(self).__name__} are {parameter.dtype}: "
                    "convert one of them with .to()"
                )
        if self.acyclic and not graph.is_dag:
            way_out = ", or set acyclic=False" if "acyclic" in signature(type(self)).parameters else ""
            raise ValueError(
                f"edge_index has a cycle (every undirected graph has), but this {type(self).__name__} takes DAGs "
                f"alone: turn or remove an edge of it{way_out}"
            )
        found: object = self.change(graph)
        if not isinstance(found, Morph):
            wanted = f"{type(self).__name__}.change must return a Morph, as graph.changed(...) makes one"
            raise TypeError(f"{wanted}, but returned a {type(found).__name__}")
        return found

    def reset_parameters(self) -> None:
        """All parameters as they were at first."""
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them; what is learned, as it is now."""
        settings = {name: getattr(self, name) for name in signature(type(self)).parameters if hasattr(self, name)}
        return ", ".join(
            f"{name}={value.item():.3g}" if isinstance(value, Tensor) else f"{name}={value!r}"
            for name, value in settings.items()
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def change(self, graph: Morph) -> Morph:
        """The graph after the change."""
        raise TypeError(f"{type(self).__name__} does not define change(graph), which an operator is")


def as_graph(
    x: Tensor | Data,
    edge_index: Tensor | None,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    *,
    edge_type: Tensor | None = None,
    **more: Any,
) -> Morph:
    """A graph before any change, checked, with int64 indices in memory order; `more` are other fields of it."""
    if isinstance(x, Data):
        edge_type, existence = x.get("edge_type"), x.get("existence")
        if existence is not None:
            check_range("existence", existence, 1.0)
            more["existence"] = existence
        if x.get("batch") is not None:
            more["graphs"] = count_graphs(x)
        x, edge_index, edge_weight, batch = x.x, x.edge_index, x.get("edge_weight"), x.get("batch")
    check_graph(x, edge_index, edge_weight, batch, more.get("graphs"))
    assert edge_index is not None
    if edge_type is not None:
        check_types(edge_index, edge_type)
        edge_type = edge_type.long().contiguous()
    edge_weight = None if edge_weight is None else edge_weight.to(x.dtype).contiguous()
    batch = None if batch is None else batch.long().contiguous()
    return Morph.start(x.contiguous(), edge_index.long().contiguous(), edge_weight, batch, edge_type=edge_type, **more)
