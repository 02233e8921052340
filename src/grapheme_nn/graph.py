"""Graphs of data: text to PyG graphs and back.

A graph of data is a PyG `Data`, several are a PyG `Batch`; its `x` says *what* each node is. Of text it has:

    x             int64 [n]     which unit a node is: its code point; where a unit has several code points, or none, a
                                negative number made from them, the same wherever that unit occurs
    edge_index    int64 [2, e]  an edge from each node to the next
    unit          str           what a node of this text is, one of `UNITS`
    spelling      int64 [c]     only where a unit may have several code points (`cluster`, `symbol`): the code points of
    spelling_size int64 [n]     all nodes, one node after the other, and how many of them each node has
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Literal, NamedTuple, get_args
from unicodedata import normalize

import numpy as np
import regex
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Batch, Data

from grapheme_nn.dag import Integers, is_sorted, offsets

Unit = Literal["codepoint", "cluster", "decomposed", "symbol", "graph"]  # "graph" where it is no text
UNITS: tuple[Unit, ...] = get_args(Unit)[:-1]


def units_of(text: str, unit: Unit) -> list[str]:
    """The units of a text as strings: what its nodes are."""
    if unit == "symbol":
        return text.split(" ") if text else []
    if unit == "cluster":
        return list(regex.findall(r"\X", text))
    return list(normalize("NFD", text) if unit == "decomposed" else text)


def join_units(units: Sequence[str], unit: Unit) -> str:
    """The text that units spell: the inverse of `units_of`."""
    text = (" " if unit == "symbol" else "").join(units)
    return normalize("NFC", text) if unit == "decomposed" else text


class _Nodes(NamedTuple):
    """The nodes of several texts, one text after the other."""

    identity: Integers  # [n]
    per_text: Integers  # [number of texts]: nodes of each text
    spelled: dict[str, Integers]  # `spelling` [c] and `spelling_size` [n], where a unit may have several code points


def text_to_graph(text: str, unit: Unit = "codepoint") -> Data:
    """The graph of one text: a node for each unit, an edge from each node to the next.

    `unit` is what a node is: `codepoint`; `cluster`, an extended grapheme cluster; `decomposed`, a code point of the
    canonical decomposition (Hangul falls into jamo); `symbol`, what stands between two spaces. The round trip through
    `graph_to_text` is exact for every `str`, with `decomposed` up to canonical equivalence.
    """
    nodes = _nodes([text], unit)
    target = np.arange(1, nodes.identity.size)
    fields = {"x": nodes.identity, "edge_index": np.stack([target - 1, target]), **nodes.spelled}
    return Data(unit=unit, **{name: torch.from_numpy(value) for name, value in fields.items()})


def texts_to_batch(
    texts: Sequence[str], unit: Unit = "codepoint", features: Sequence[Sequence[str]] | None = None
) -> Batch:
    """The graphs of many texts as one `Batch`, as if made by `Batch.from_data_list`, but in one vectorised pass.

    `features` of each text, where it has any, condition its graph without being part of it: `feature` int64 [f], and
    the graph of each, `feature_batch`.
    """
    nodes = _nodes(texts, unit)
    node, owner, pointer = _owned(nodes.identity, nodes.per_text)
    batch = Batch(x=node, edge_index=chain_edges(pointer), batch=owner, ptr=pointer, unit=[unit] * len(texts))
    batch._num_graphs = len(texts)
    # What Batch.to_data_list needs to take the batch apart again: where each graph's part of a field begins, and by
    # how much its numbers were raised.
    links = torch.from_numpy(offsets(np.maximum(nodes.per_text - 1, 0)))
    batch._slice_dict = {"x": pointer, "edge_index": links, "unit": torch.arange(len(texts) + 1)}
    if features is not None:
        if len(features) != len(texts):
            raise ValueError(f"there are {len(texts)} texts, but features for {len(features)}")
        names = [np.array(name_identities(row), dtype=np.int64) for row in features]
        batch.feature, batch.feature_batch, batch._slice_dict["feature"] = _owned(*_concatenated(names))
    for name, value in nodes.spelled.items():
        batch[name] = torch.from_numpy(value)
        batch._slice_dict[name] = pointer
    if nodes.spelled:
        batch._slice_dict["spelling"] = torch.from_numpy(offsets(nodes.spelled["spelling_size"])[pointer.numpy()])
    batch._inc_dict = dict.fromkeys(batch._slice_dict, torch.zeros(len(texts), dtype=torch.long))
    batch._inc_dict.update(edge_index=pointer[:-1], unit=None)
    return batch


def identities(texts: Sequence[str], unit: Unit = "codepoint") -> list[Integers]:
    """The `x` of the graph of each text, for those who need no graph."""
    nodes = _nodes(texts, unit)
    ends = np.cumsum(nodes.per_text).tolist()
    return [nodes.identity[begin:end] for begin, end in pairwise([0, *ends])]


def label_identities(labels: Sequence[str]) -> Integers:
    """The `x` of nodes with these labels, each one unit however long, int64 [labels]."""
    return _identities(_codepoints("".join(labels)), _integers(map(len, labels), len(labels)))


def type_identities(types: Sequence[int | str]) -> list[int]:
    """The `edge_type` of edges of these types: a number is itself, a name the number that stands for it."""
    names = iter(name_identities([kind for kind in types if isinstance(kind, str)]))
    return [next(names) if isinstance(kind, str) else kind for kind in types]


def name_identities(names: Sequence[str]) -> list[int]:
    """An int64 for each name, the same everywhere and always: what a feature is in a batch."""
    return [
        int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)
        for name in names
    ]


def chains(units: Sequence[Integers], features: Sequence[Integers] | None = None) -> Data:
    """Chains for a network, from the `x` of each one's nodes, and perhaps the `feature` of each (see `texts_to_batch`).

    Without `edge_index`: that it leads from each node to the next is known, and most networks can do without it.
    """
    node, owner, pointer = _owned(*_concatenated(units))
    batch = Data(x=node, batch=owner, ptr=pointer)
    if features is not None:
        batch.feature, batch.feature_batch, _ = _owned(*_concatenated(features))
    return batch


def as_batch(nodes: dict[str, Tensor], edges: dict[str, Tensor], owner: Tensor, graphs: int) -> Batch:
    """A PyG `Batch` of so many graphs that can be taken apart, `to_data_list()`: its edges stand graph after graph.

    Fields of nodes [n, ...], and of edges ([2, e] or [e]); `owner` int64 [n] is the graph of each node.
    Where it is not sorted, PyG has no way to take the graphs apart.
    """
    of_edge = owner[edges["edge_index"][0]]
    order = of_edge.argsort(stable=True)
    batch = Batch(**nodes, **{name: value[..., order] for name, value in edges.items()}, batch=owner)
    batch._num_graphs = graphs
    if is_sorted(owner):
        batch.ptr, links = (pad(torch.bincount(of, minlength=graphs).cumsum(0), (1, 0)) for of in (owner, of_edge))
        batch._slice_dict = dict.fromkeys(nodes, batch.ptr) | dict.fromkeys(edges, links)
        batch._inc_dict = dict.fromkeys(batch._slice_dict, torch.zeros_like(batch.ptr)) | {"edge_index": batch.ptr}
    return batch


def chain_edges(pointer: Tensor) -> Tensor:
    """From each node to the next in chains that begin and end at `pointer` int64 [B + 1]: int64 [2, e]."""
    begin = pointer.numpy(force=True)
    follows = np.ones(begin[-1], dtype=bool)  # node i has a node before it in its own graph
    follows[begin[:-1][np.diff(begin) > 0]] = False
    target = np.flatnonzero(follows)
    return torch.from_numpy(np.stack([target - 1, target])).to(pointer.device)


def graph_to_text(graph: Data) -> str:
    """The text that a graph made by `text_to_graph` spells, its nodes read in their own order."""
    return _spell(graph, np.array([graph.num_nodes]), [graph.unit] if "unit" in graph else [])[0]


def batch_to_texts(batch: Batch) -> list[str]:
    """The texts that the graphs of a batch spell: the inverse of `texts_to_batch`."""
    units = [batch.unit] * batch.num_graphs if isinstance(batch.unit, str) else batch.unit
    return _spell(batch, np.diff(batch.ptr.numpy(force=True)), units)


def count_graphs(graphs: Data) -> int:
    """How many graphs a PyG `Data` or `Batch` holds."""
    if getattr(graphs, "_num_graphs", None) is not None:  # a `Batch` knows, and its last graphs may be empty
        return int(graphs._num_graphs)
    if graphs.get("ptr") is not None:
        return int(graphs.ptr.numel()) - 1
    owner = graphs.get("batch")
    return 1 if owner is None else int(owner.max()) + 1 if owner.numel() else 0


def _nodes(texts: Sequence[str], unit: Unit) -> _Nodes:
    if isinstance(texts, str):
        raise TypeError("texts must be a list of texts, but got one str: put it in a list, or use text_to_graph")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a text must be a str, but got {type(text).__name__}: decode bytes first")
    if unit not in UNITS:
        raise ValueError(f"unknown unit {unit!r}: choose one of {', '.join(UNITS)}")
    if unit == "decomposed":
        texts = [normalize("NFD", text) for text in texts]
    if unit in ("codepoint", "decomposed"):  # as `units_of` has it, without a string for each unit
        return _Nodes(_codepoints("".join(texts)), _integers(map(len, texts), len(texts)), {})
    units = [units_of(text, unit) for text in texts]
    count = _integers(map(len, units), len(units))
    size = _integers(map(len, chain.from_iterable(units)), int(count.sum()))
    spelling = _codepoints("".join(chain.from_iterable(units)))
    return _Nodes(_identities(spelling, size), count, {"spelling": spelling, "spelling_size": size})


def _identities(spelling: Integers, size: Integers) -> Integers:
    """A number for each unit: its code point, or a negative hash (a polynomial in 2^64) of several or none."""
    start = offsets(size)
    place = np.arange(spelling.size) - np.repeat(start[:-1], size)
    powers = np.full(int(size.max(initial=0)) + 1, 0x9E3779B97F4A7C15, dtype=np.uint64)
    powers[0] = 1
    terms = (spelling.astype(np.uint64) + np.uint64(1)) * np.multiply.accumulate(powers)[place]
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
    identity: Integers = (sums[start[1:]] - sums[start[:-1]] | np.uint64(1 << 63)).view(np.int64)
    single = size == 1
    identity[single] = spelling[start[:-1][single]]
    return identity


def _spell(graph: Data, count: Integers, units: Sequence[str]) -> list[str]:
    """The texts of consecutive graphs with `count` nodes each."""
    if "x" not in graph or "unit" not in graph:
        missing = "x" if "x" not in graph else "unit"
        raise ValueError(f"the graph does not spell a text: it has no {missing}")
    nodes = int(count.sum())
    if "spelling" in graph:
        spelling, size = graph.spelling.numpy(force=True), graph.spelling_size.numpy(force=True)
        if size.size != nodes or int(size.sum()) != spelling.size:
            raise ValueError(
                f"the graph has {nodes} nodes and {spelling.size} code points, but spelling_size speaks of {size.size} "
                f"nodes and {int(size.sum())} code points: select nodes before making the graph, or spell them again"
            )
    else:
        spelling, size = graph.x.numpy(force=True), np.ones(nodes, dtype=np.int64)
        if spelling.ndim != 1 or (spelling.size and not 0 <= spelling.min() <= spelling.max() <= 0x10FFFF):
            raise ValueError("x is not one code point per node, so the graph does not spell a text")
    # A space after every symbol but the last of its text.
    begin = offsets(count)
    spaced = np.repeat(np.array([unit == "symbol" for unit in units], dtype=bool), count)
    spaced[begin[1:][count > 0] - 1] = False
    whole = np.insert(spelling, np.cumsum(size)[spaced], ord(" ")).astype("<u4").tobytes()
    decoded = whole.decode("utf-32-le", "surrogatepass")
    texts = [decoded[first:last] for first, last in pairwise(offsets(size + spaced)[begin].tolist())]
    return [normalize("NFC", text) if unit == "decomposed" else text for unit, text in zip(units, texts, strict=True)]


def _owned(values: Integers, count: Integers) -> tuple[Tensor, Tensor, Tensor]:
    """Values of several graphs, `count` each, the graph of each value, and where those of each graph begin and end."""
    owner = np.repeat(np.arange(count.size), count)
    return torch.from_numpy(values), torch.from_numpy(owner), torch.from_numpy(offsets(count))


def _concatenated(rows: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Rows one after the other, and how long each is."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows]), _integers(map(len, rows), len(rows))


def _codepoints(text: str) -> Integers:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def _integers(values: object, count: int) -> Integers:
    return np.fromiter(values, dtype=np.int64, count=count)  # type: ignore[call-overload,no-any-return]
