"""Graphs as text: trees of box characters for a terminal, and one node with its operands in a line."""

from itertools import zip_longest

from grapheme_nn.data.graphs import Graph, cut

MOST_LINES = 30


def draw(graph: Graph, most_lines: int = MOST_LINES) -> str:
    """The graph as a tree: nodes that are operands of nothing at the top, operands below in the order of their types.

        *
        ├─ x #1
        └─ sin
           └─ #1

    A node that is an operand of several is shown once with its number, `#1`, afterwards by its number alone. A type
    that is a name stands before the operand. What is left out after `most_lines` is counted.
    """
    if not graph.nodes:
        return "(no nodes)"
    below = operands(graph)
    uses = [0] * len(graph.nodes)
    for source, _, _ in graph.edges:
        uses[source] += 1
    # Where there is a cycle, no node of it is at the top: all nodes are asked once more at the end.
    tops = [node for node in range(len(graph.nodes)) if not uses[node]]
    waiting: list[tuple[int, str, str, str]] = [(node, "", "", "") for node in (*tops, *range(len(graph.nodes)))][::-1]
    lines: list[str] = []
    shown: set[int] = set()
    while waiting and len(lines) < most_lines:
        node, branch, indent, name = waiting.pop()
        if node in shown:
            if branch:
                lines.append(f"{branch}{name}#{node}")
            continue
        shown.add(node)
        lines.append(f"{branch}{name}{_plain(graph.nodes[node])}{f' #{node}' if uses[node] > 1 else ''}")
        for place, (operand, kind) in reversed(list(enumerate(below[node], 1))):
            last = place == len(below[node])
            named = f"{_plain(kind)}: " if isinstance(kind, str) else ""
            waiting.append((operand, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  "), named))
    left = len(graph.nodes) - len(shown)
    if left:
        lines.append(f"... and {left:,} more node{'s' * (left > 1)}")
    return "\n".join(lines)


def beside(blocks: dict[str, str], width: int = 110) -> str:
    """Named blocks of lines side by side, or one below the other where they are wider than that together."""
    columns = [[name, *block.split("\n")] for name, block in blocks.items()]
    widths = [max(map(len, column)) for column in columns]
    if sum(widths) + 4 * (len(columns) - 1) > width:
        return "\n".join("\n".join([column[0], *(f"    {line}" for line in column[1:])]) for column in columns)
    rows = zip_longest(*columns, fillvalue="")
    return "\n".join("    ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def preview(graph: Graph, most_labels: int = 8) -> str:
    """A graph in a few words: how many nodes and edges, and the first labels."""
    labels = cut(" ".join(map(_plain, graph.nodes[:most_labels]))) + " ..." * (len(graph.nodes) > most_labels)
    nodes, edges = (
        f"{len(part):,} {word}{'s' * (len(part) != 1)}" for part, word in zip(graph[:2], ("node", "edge"), strict=True)
    )
    return f"a graph of {nodes} and {edges} ({labels})" if graph.nodes else "a graph without nodes"


def operands(graph: Graph) -> list[list[tuple[int, int | str]]]:
    """For each node those whose edges lead to it, and the types: positions in their order, then names in theirs."""
    found: list[list[tuple[int, int | str]]] = [[] for _ in graph.nodes]
    for source, target, kind in graph.edges:
        found[target].append((source, kind))
    for row in found:
        row.sort(key=lambda operand: (isinstance(operand[1], str), operand[1], operand[0]))
    return found


def term(graph: Graph, below: list[list[tuple[int, int | str]]], node: int, depth: int = 1) -> str:
    """A node with its operands, such as `*(x, 1)`, so many levels deep; `below` as `operands` gives it."""
    label = _plain(graph.nodes[node])
    if depth == 0 or not below[node]:
        return label
    inner = (
        (f"{_plain(kind)}: " if isinstance(kind, str) else "") + term(graph, below, operand, depth - 1)
        for operand, kind in below[node]
    )
    return f"{label}({', '.join(inner)})"


def _plain(label: str) -> str:
    """The label, in quotes where it could not be seen as it is."""
    return label if label.isprintable() and label.strip() == label != "" else repr(label)
