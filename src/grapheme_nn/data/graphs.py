"""Graphs as files hold them: labelled nodes and typed edges, checked when read, converted for others."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral
from typing import Any, NamedTuple

KEYS = ("nodes", "edges", "directed")
MOST_SHOWN = 12  # nodes of a cycle
LONGEST = 80  # characters of what users gave, in a message
# What XML 1.0 has no way to write.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Graph(NamedTuple):
    """A labelled DAG with typed edges, `{"nodes": ["*", "x", "sin", "x"], "edges": [[1, 0, 0], [2, 0, 1], [3, 2]]}`.

    An edge leads from an operand to what it is an operand of; its type is the operand's position, or a relation. Nodes
    and edges are counted from 0 everywhere, in messages too.
    """

    nodes: tuple[str, ...]  # what each node is
    edges: tuple[tuple[int, int, int | str], ...]  # source, target, type: 0 where none is given
    directed: bool = True  # False: an edge leads from the node with the lower number, and means both directions

    @classmethod
    def from_dict(cls, value: object) -> "Graph":
        """The graph that a JSON object says, checked: a `ValueError` names the node or the edge that is wrong.

        `nodes` is a list of strings; `edges`, which may be missing, a list of `[source, target]` or `[source, target,
        type]` with a type that is a string or an integer from 0. Edges form no cycle, and none occurs twice. With
        `"directed": false` they have no direction and may form cycles; each then leads from the node with the lower
        number. Linear time.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"a graph must be an object with 'nodes' and 'edges', but is {kind_of(value)}")
        for key in value:
            if key not in KEYS:
                near = get_close_matches(str(key), KEYS, n=1)
                meant = f"did you mean {near[0]!r}?" if near else f"a graph has {', '.join(KEYS)}"
                raise ValueError(f"unknown key {shown(key)} in a graph: {meant}")
        if "nodes" not in value:
            raise ValueError("the graph has no 'nodes': give a list of labels")
        directed = value.get("directed", True)
        if not isinstance(directed, bool):
            raise ValueError(f"'directed' must be true or false, but is {kind_of(directed)}")
        nodes = _checked_nodes(value["nodes"])
        edges = _checked_edges(value.get("edges", ()), len(nodes), directed)
        cycle = find_cycle(edges, len(nodes)) if directed else None
        if cycle:
            raise ValueError(f"the edges form a cycle: {_shown_cycle(cycle)}: remove one of them, or turn it round")
        return cls(nodes, edges, directed)

    def as_dict(self) -> dict[str, Any]:
        """What JSON has for this graph: edges have types where any is not 0, `directed` is there where it is false."""
        typed = any(kind != 0 for _, _, kind in self.edges)
        found: dict[str, Any] = {"nodes": list(self.nodes)}
        found["edges"] = [list(edge) if typed else list(edge[:2]) for edge in self.edges]
        return found if self.directed else found | {"directed": False}

    @classmethod
    def from_networkx(cls, graph: Any, *, label: str = "label", type: str = "type") -> "Graph":
        """A networkx graph: its nodes in their order, labels and types of edges from the attributes of these names.

        Every node has a label, a string; an edge without a type has type 0. An undirected graph gives `directed` false.
        """
        number = {node: place for place, node in enumerate(graph)}
        for node, attributes in graph.nodes(data=True):
            if label not in attributes:
                raise ValueError(
                    f"node {shown(node)} has no attribute {label!r}: set it, or name another with label=..."
                )
        edges: list[tuple[int, int, Any]] = []
        for source, target, given in graph.edges(data=type, default=0):
            if isinstance(given, Integral) and not isinstance(given, bool):
                given = int(given)  # numpy has integers of its own, and strings
            edges.append((number[source], number[target], str(given) if isinstance(given, str) else given))
        labels = [name for _, name in graph.nodes(data=label)]
        return cls.from_dict({"nodes": labels, "edges": edges, "directed": bool(graph.is_directed())})

    def to_networkx(self) -> Any:
        """A networkx graph of nodes 0 to n - 1 with `label`, and edges with `type`.

        It is a multigraph where two edges, of different types, have the same ends.
        """
        import networkx as nx

        parallel = len({edge[:2] for edge in self.edges}) < len(self.edges)
        classes = {(True, False): nx.DiGraph, (True, True): nx.MultiDiGraph, (False, False): nx.Graph}
        graph = classes.get((self.directed, parallel), nx.MultiGraph)()
        graph.add_nodes_from((place, {"label": label}) for place, label in enumerate(self.nodes))
        graph.add_edges_from((source, target, {"type": kind}) for source, target, kind in self.edges)
        return graph

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        word, arrow = ("digraph", "->") if self.directed else ("graph", "--")
        typed = any(kind != 0 for _, _, kind in self.edges)
        lines = [f"  {place} [label={_dot_quoted(label)}];" for place, label in enumerate(self.nodes)]
        for source, target, kind in self.edges:
            lines.append(f"  {source} {arrow} {target}{f' [label={_dot_quoted(str(kind))}]' if typed else ''};")
        return "\n".join([f"{word} {{", *lines, "}"]) + "\n"

    def to_graphml(self) -> str:
        """The graph in GraphML; a character that XML cannot hold is refused by a `ValueError`."""
        import networkx as nx

        for text in (*self.nodes, *(str(kind) for _, _, kind in self.edges)):
            wrong = _NOT_XML.search(text)
            if wrong:
                raise ValueError(f"the label {shown(text)} has {wrong[0]!r} in it, which XML cannot hold: write JSON")
        return "\n".join(nx.generate_graphml(self.to_networkx())) + "\n"


def find_cycle(edges: Sequence[tuple[int, int, object]], num_nodes: int) -> list[int] | None:
    """The nodes of a cycle in the order of its edges, the lowest first; None where there is none. Linear time."""
    if all(source < target for source, target, _ in edges) or all(source > target for source, target, _ in edges):
        return None
    successors: list[list[int]] = [[] for _ in range(num_nodes)]
    missing = [0] * num_nodes
    for source, target, _ in edges:
        successors[source].append(target)
        missing[target] += 1
    free = [node for node in range(num_nodes) if not missing[node]]
    for node in free:  # grows while we walk it (Kahn, 1962)
        for successor in successors[node]:
            missing[successor] -= 1
            if not missing[successor]:
                free.append(successor)
    if len(free) == num_nodes:
        return None
    # Every node that is left has a predecessor that is left: going back, we must come to a node once more.
    before = {target: source for source, target, _ in edges if missing[source] and missing[target]}
    path, seen = [next(iter(before))], {}
    while path[-1] not in seen:
        seen[path[-1]] = len(path) - 1
        path.append(before[path[-1]])
    cycle = path[seen[path[-1]] : -1][::-1]
    lowest = cycle.index(min(cycle))
    return cycle[lowest:] + cycle[:lowest]


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def cut(text: str) -> str:
    """The text as a message has it: its beginning, and how long it is, where it is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    return cut(repr(value))


def _checked_nodes(nodes: object) -> tuple[str, ...]:
    if not isinstance(nodes, list | tuple):
        raise ValueError(f"'nodes' must be a list of labels, but is {kind_of(nodes)}")
    if set(map(type, nodes)) <= {str}:
        return tuple(nodes)
    for place, label in enumerate(nodes):
        if isinstance(label, str):
            continue
        plain = isinstance(label, int | float) and not isinstance(label, bool)
        way_out = f': write "{cut(str(label))}"' if plain else ""
        raise ValueError(f"the label of node {place} must be a string, but is {kind_of(label)}{way_out}")
    return tuple(map(str, nodes))


def _checked_edges(edges: object, num_nodes: int, directed: bool) -> tuple[tuple[int, int, int | str], ...]:
    if not isinstance(edges, list | tuple):
        raise ValueError(f"'edges' must be a list of edges, but is {kind_of(edges)}")
    found: dict[tuple[int, int, int | str], int] = {}
    for place, edge in enumerate(edges):
        if not isinstance(edge, list | tuple) or not 2 <= len(edge) <= 3:
            has = f"has {len(edge)} values" if isinstance(edge, list | tuple) else f"is {kind_of(edge)}"
            raise ValueError(f"edge {place} must be [source, target] or [source, target, type], but {has}")
        source, target = edge[0], edge[1]
        kind = edge[2] if len(edge) == 3 else 0
        for end in (source, target):
            if type(end) is not int:
                raise ValueError(f"edge {place} must lead between numbers of nodes, but one of them is {kind_of(end)}")
            if not 0 <= end < num_nodes:
                there = f"there are {num_nodes} nodes" if num_nodes != 1 else "there is 1 node"
                first = " (the first is 0)" if end == num_nodes or end < 0 else ""
                raise ValueError(f"edge {place} refers to node {shown(end)}, but {there}{first}")
        if type(kind) is int:
            if kind < 0:
                raise ValueError(
                    f"the type of edge {place} must be a string or an integer from 0, but is {shown(kind)}"
                )
        elif type(kind) is not str:
            what = kind if isinstance(kind, float) else kind_of(kind)
            raise ValueError(f"the type of edge {place} must be a string or an integer from 0, but is {what}")
        if source == target:
            raise ValueError(f"edge {place} leads from node {source} to itself: remove it")
        if not directed and source > target:
            source, target = target, source
        first_place = found.setdefault((source, target, kind), place)
        if first_place != place:
            raise ValueError(
                f"edge {place} is edge {first_place} once more, {edge[0]} to {edge[1]} with type {shown(kind)}: "
                "remove it"
            )
    return tuple(found)


def _shown_cycle(cycle: list[int]) -> str:
    shown = [str(node) for node in [*cycle, cycle[0]]]
    if len(shown) > MOST_SHOWN:
        shown[MOST_SHOWN - 2 : -2] = [f"... {len(shown) - MOST_SHOWN:,} more ..."]
    return " -> ".join(shown)


def _dot_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return f'"{escaped}"'
