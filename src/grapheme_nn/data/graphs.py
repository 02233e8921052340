"""Graphs as files hold them: labelled nodes, typed edges, nothing of tensors."""

from typing import NamedTuple


class Graph(NamedTuple):
    """A labelled DAG with typed edges, `{"nodes": ["*", "x", "sin", "x"], "edges": [[1, 0, 0], [2, 0, 1], [3, 2]]}`.

    An edge leads from an operand to what it is an operand of; its type is the operand's position, or a relation.
    """

    nodes: tuple[str, ...]  # what each node is
    edges: tuple[tuple[int, int, int | str], ...]  # source, target, type: 0 where none is given
    directed: bool = True  # False: an edge leads from the node with the lower number, and means both directions
