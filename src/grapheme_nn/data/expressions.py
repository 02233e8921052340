"""Expressions as DAGs: drawn by chance with shared sub-expressions, evaluated, turned into graphs and back."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar

from grapheme_nn.data.graphs import Graph

T = TypeVar("T")
Key = TypeVar("Key", int, tuple[int, int])

SHARED = 0.12  # of the operands are a sub-expression that stands already elsewhere
MOST_NODES = 500


class Node(NamedTuple):
    """An operator with its operands, or a leaf without any."""

    label: str
    operands: tuple[int, ...] = ()  # numbers of nodes that stand before it


Expression: TypeAlias = Sequence[Node]  # operands first, the root last; every node is needed by the root


class Grammar(NamedTuple):
    """What `draw_expression` draws from; what stands twice is twice as likely."""

    leaves: Sequence[str]
    operators: Sequence[tuple[str, int]]  # label, number of operands
    stop: float  # probability that a branch ends before the full depth


def draw_expression(random: Random, grammar: Grammar, depth: int) -> list[Node]:
    """An expression whose longest path has `depth` edges, and at most `MOST_NODES` nodes.

    One path is led to the full depth; at each of its nodes the other branch may stop. Every leaf is a node of its own;
    an operator may be the operand of several, or both operands of one.
    """
    nodes: list[Node] = []
    heights: list[int] = []  # of the nodes: edges on the longest path down

    def build(height: int, exact: bool) -> int:
        """The number of a new node, whose height is at most, or exactly, the given one."""
        operands: list[int] = []
        if height and (exact or random.random() >= grammar.stop):
            label, arity = random.choice(grammar.operators)
            highest = random.randrange(arity)
            for position in range(arity):
                full = exact and position == highest
                fitting = []
                if random.random() < SHARED:
                    fitting = [i for i, h in enumerate(heights) if (h == height - 1 if full else h < height) and h]
                operands.append(random.choice(fitting) if fitting else build(height - 1, full))
        else:
            label = random.choice(grammar.leaves)
        nodes.append(Node(label, tuple(operands)))
        heights.append(1 + max((heights[operand] for operand in operands), default=-1))
        return len(nodes) - 1

    build(depth, True)
    return nodes if len(nodes) <= MOST_NODES else draw_expression(random, grammar, depth)


def evaluate(expression: Expression, meaning: Callable[..., T]) -> T:
    """The value of the root, where `meaning(label, *values)` is that of a node whose operands have those values."""
    values: list[T] = []
    for label, operands in expression:
        values.append(meaning(label, *(values[operand] for operand in operands)))
    return values[-1]


def needed(nodes: Mapping[Key, tuple[str, tuple[Key, ...]]], root: Key) -> list[Node]:
    """The expression of the nodes that the root needs, in the order of their keys: operands have the lower ones."""
    found = {root}
    stack = [root]
    while stack:
        for operand in nodes[stack.pop()][1]:
            if operand not in found:
                found.add(operand)
                stack.append(operand)
    number = {key: i for i, key in enumerate(sorted(found))}
    return [Node(nodes[key][0], tuple(number[operand] for operand in nodes[key][1])) for key in number]


def to_graph(expression: Expression) -> Graph:
    """The graph with the same nodes in the same order, an edge's type being the operand's position."""
    return Graph(
        tuple(label for label, _ in expression),
        tuple(
            (operand, number, position)
            for number, (_, operands) in enumerate(expression)
            for position, operand in enumerate(operands)
        ),
    )


def from_graph(graph: Graph) -> list[Node]:
    """The expression of a graph with one root, in the order of a walk that visits operands first, left to right.

    Operands are ordered by the types of their edges, positions before relations.
    """
    operands: list[list[tuple[bool, Any, int]]] = [[] for _ in graph.nodes]
    roots = set(range(len(graph.nodes)))
    for source, target, kind in graph.edges:
        operands[target].append((isinstance(kind, str), kind, source))
        roots.discard(source)
    if len(roots) != 1:
        raise ValueError(f"an expression has one root, but this graph has {len(roots)}")
    nodes: list[Node] = []
    number: dict[int, int] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        sources = [source for *_, source in sorted(operands[node])]
        waiting = [source for source in sources if source not in number]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        if node not in number:
            number[node] = len(nodes)
            nodes.append(Node(graph.nodes[node], tuple(number[source] for source in sources)))
    return nodes


def permute(graph: Graph, random: Random) -> Graph:
    """The same graph with its nodes in an order drawn by chance; edges follow the order of the nodes they lead to."""
    order = list(range(len(graph.nodes)))
    random.shuffle(order)
    place = {node: new for new, node in enumerate(order)}
    edges = [(place[source], place[target], kind) for source, target, kind in graph.edges]
    edges.sort(key=lambda edge: edge[1])
    return Graph(tuple(graph.nodes[node] for node in order), tuple(edges), graph.directed)


def to_prefix(graph: Graph, most: int = 12) -> str:
    """A graph in Polish notation for people to read: what is shared is repeated, what is long is cut."""
    expression = from_graph(graph)
    words: list[str] = []
    stack = [len(expression) - 1]
    while stack and len(words) < most:
        label, operands = expression[stack.pop()]
        words.append(label)
        stack += reversed(operands)
    return " ".join(words + ["..."] * bool(stack))
