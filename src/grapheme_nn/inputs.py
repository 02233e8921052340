"""The room of what the network reads: texts and their features as graphs, and graphs as padded tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from unicodedata import normalize

import numpy as np
import regex
import torch
from torch import Tensor
from torch_geometric.data import Batch

from grapheme_nn.graph import Integers, Unit, identities, texts_to_batch
from grapheme_nn.nn.embedding import name_identities
from grapheme_nn.nn.structure import Structure, arrange, padding_mask


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch of B graphs, padded to n nodes and f features each.

    Features are nodes that condition a graph. They speak to all of its other nodes, and no output is made from them.
    """

    unit: Tensor  # int64 [B, n]: which unit a node is, 0 in the padding
    structure: Structure  # of the nodes that are no features
    feature: Tensor | None = None  # int64 [B, f]: which feature, 0 in the padding
    feature_mask: Tensor | None = None  # bool [B, f]
    node: Tensor | None = None  # int64 [B, n]: the number of each node in the batch it came from; None: in order
    num_nodes: int | None = None  # of that batch, features included

    def to(self, device: torch.device | str) -> "Inputs":
        """The same inputs on another device."""
        edges = self.structure.edge_index
        moved = Structure(self.structure.mask.to(device), None if edges is None else edges.to(device))
        rest = self.feature, self.feature_mask, self.node
        feature, mask, node = (None if tensor is None else tensor.to(device) for tensor in rest)
        return Inputs(self.unit.to(device), moved, feature, mask, node, self.num_nodes)


def inputs_to_batch(
    texts: Sequence[str], features: Sequence[Sequence[str]] | None = None, unit: Unit = "codepoint"
) -> Batch:
    """The graphs of texts as a PyG `Batch`, with a node for each feature before the nodes of its text.

    An edge leads from every feature to every node of the text. `is_feature` bool [n] tells the two kinds apart.
    """
    batch = texts_to_batch(texts, unit)
    if features is None:
        batch.is_feature = torch.zeros(batch.num_nodes, dtype=torch.bool)
        return batch
    _same_number(texts, features)
    letters, names = np.diff(batch.ptr.numpy()), np.array([len(row) for row in features], dtype=np.int64)
    ptr = np.concatenate([[0], np.cumsum(letters + names)])
    is_feature = np.zeros(ptr[-1], dtype=bool)
    owner = np.repeat(np.arange(len(texts)), names)  # the graph of each feature
    place = np.arange(owner.size) - np.repeat(np.cumsum(names) - names, names)
    feature_node = ptr[owner] + place
    is_feature[feature_node] = True
    text_node = np.flatnonzero(~is_feature)
    x = np.zeros(ptr[-1], dtype=np.int64)
    x[text_node] = batch.x.numpy()
    x[feature_node] = name_identities([name for row in features for name in row])
    # Edge (feature, i-th node of its text) for every i.
    source = np.repeat(feature_node, letters[owner])
    step = np.arange(source.size) - np.repeat(np.cumsum(letters[owner]) - letters[owner], letters[owner])
    target = np.repeat((ptr[:-1] + names)[owner], letters[owner]) + step
    chain = text_node[batch.edge_index.numpy()]
    return Batch(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(np.concatenate([chain, np.stack([source, target])], 1)),
        batch=torch.from_numpy(np.repeat(np.arange(len(texts)), letters + names)),
        ptr=torch.from_numpy(ptr),
        is_feature=torch.from_numpy(is_feature),
        unit=[unit] * len(texts),
    )


def batch_to_inputs(batch: Batch) -> Inputs:
    """Any batch of DAGs as inputs: `x` int64 [n] and edges; perhaps `is_feature`."""
    if batch.x is None or batch.x.dim() != 1 or batch.x.is_floating_point():
        raise ValueError("x must be one integer per node that says which unit it is, see text_to_graph")
    graphs, owner = batch.num_graphs, batch.batch
    special = batch.is_feature if "is_feature" in batch else torch.zeros_like(owner, dtype=torch.bool)
    own = (~special).nonzero()[:, 0]
    number = torch.full_like(owner, -1)
    number[own] = torch.arange(own.numel(), device=own.device)
    edges = number[batch.edge_index]
    structure, order = arrange(owner[own], edges[:, (edges >= 0).all(0)], graphs)
    node = _unflatten(own[order], structure.mask)
    inputs = Inputs(_unflatten(batch.x[own[order]], structure.mask), structure, node=node, num_nodes=batch.num_nodes)
    if not bool(special.any()):
        return inputs
    named = special.nonzero()[:, 0]
    mask = padding_mask(torch.bincount(owner[named], minlength=graphs))
    return replace(inputs, feature=_unflatten(batch.x[named], mask), feature_mask=mask)


def texts_to_inputs(texts: Sequence[str], features: Sequence[Sequence[str]] | None, unit: Unit) -> Inputs:
    """What `batch_to_inputs` makes of `inputs_to_batch`, without the graph between them."""
    names = None
    if features is not None:
        _same_number(texts, features)
        names = [np.array(name_identities(row), dtype=np.int64) for row in features]
    return pad_inputs(identities(texts, unit), names)


def pad_inputs(units: Sequence[Integers], features: Sequence[Integers] | None) -> Inputs:
    """Inputs of chains, from the identities of each one's nodes and features."""
    unit, mask = pad(units)
    if features is None or not any(map(len, features)):
        return Inputs(unit, Structure(mask))
    return Inputs(unit, Structure(mask), *pad(features))


def pad(rows: Sequence[Integers]) -> tuple[Tensor, Tensor]:
    """Rows of integers as one tensor with zeros at the end, and where they are: int64 and bool [B, longest]."""
    lengths = np.array([row.size for row in rows], dtype=np.int64)
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    padded = np.zeros(mask.shape, dtype=np.int64)
    if rows:
        padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(mask)


def units_of(text: str, unit: Unit) -> list[str]:
    """The units of a text as strings."""
    if unit == "symbol":
        return text.split(" ") if text else []
    if unit == "cluster":
        return list(regex.findall(r"\X", text))
    return list(normalize("NFD", text) if unit == "decomposed" else text)


def join_units(units: Sequence[str], unit: Unit) -> str:
    """The text that units spell: the inverse of `units_of`."""
    text = (" " if unit == "symbol" else "").join(units)
    return normalize("NFC", text) if unit == "decomposed" else text


def _unflatten(values: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros_like(mask, dtype=values.dtype).masked_scatter(mask, values)


def _same_number(texts: Sequence[str], features: Sequence[Sequence[str]]) -> None:
    if len(texts) != len(features):
        raise ValueError(f"there are {len(texts)} texts, but features for {len(features)}")
