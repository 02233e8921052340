"""Simplification of expression DAGs by neutral elements, absorbing zeros, double negation and one-digit arithmetic.

    u + 0, 0 + u, u - 0, u * 1, 1 * u -> u      neg neg u -> u      0 - u -> neg u
    u * 0, 0 * u -> 0                           neg 0 -> 0          2 + 3 -> 5, where the result is one digit

Rules are applied from the leaves to the root, until none fits. `u - u` stays as it is.
"""

import operator
from collections.abc import Callable
from functools import partial
from random import Random

from grapheme_nn.data.expressions import Expression, Grammar, Node, draw_expression, evaluate, needed, to_graph
from grapheme_nn.data.graphs import Graph

FUNCTIONS: dict[str, Callable[..., int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "neg": operator.neg,
}
VARIABLES, DIGITS = tuple("xyz"), tuple("0123456789")
GRAMMAR = Grammar(
    # Zeros and ones often, so that rules fit often, and fit again what others have left.
    leaves=VARIABLES * 6 + DIGITS + ("0",) * 8 + ("1",) * 5,
    operators=(("+", 2), ("-", 2), ("*", 2)) * 2 + (("neg", 1),) * 3,
    stop=0.15,
)
POINTS = 4  # where an answer is verified


def most(depth: int) -> int:
    """Different expressions of that depth that are asked for: far fewer than there are, but for depth 1."""
    return {1: 400, 2: 20_000}.get(depth, 1_000_000)


def draw_simplify(random: Random, depth: int) -> tuple[Graph, Graph]:
    """An expression of that depth, and the simplified one, which has the same value at `POINTS` points."""
    expression = draw_expression(random, GRAMMAR, depth)
    simple = simplify(expression)
    for _ in range(POINTS):
        point = {name: random.randint(-99, 99) for name in VARIABLES}
        asked, given = evaluate(expression, partial(integer, point)), evaluate(simple, partial(integer, point))
        if asked != given:
            raise AssertionError(f"at {point} the expression is {asked}, but the simplified one is {given}")
    return to_graph(expression), to_graph(simple)


def simplify(expression: Expression) -> list[Node]:
    """The expression to which no rule applies any more, its nodes in the order of the input nodes that they were."""
    nodes: dict[int, tuple[str, tuple[int, ...]]] = {}  # by the input node in whose place they stand
    becomes: list[int] = []  # the node that input node i becomes

    def simple(number: int, label: str, operands: tuple[int, ...]) -> int:
        """The node that stands for an operator, or a leaf, whose operands are simplified."""
        labels = [nodes[operand][0] for operand in operands]
        if label == "neg" and labels == ["neg"]:
            return nodes[operands[0]][1][0]
        if label == "neg" and labels == ["0"]:
            return operands[0]
        if len(operands) == 2:
            left, right = operands
            neutral = "1" if label == "*" else "0"
            if labels[1] == neutral or (label == "*" and labels[0] == "0"):
                return left
            if (label != "-" and labels[0] == neutral) or (label == "*" and labels[1] == "0"):
                return right
            if label == "-" and labels[0] == "0":
                return simple(number, "neg", (right,))
            if all(operand in DIGITS for operand in labels):
                result = str(FUNCTIONS[label](*map(int, labels)))
                if result in DIGITS:
                    label, operands = result, ()
        nodes[number] = label, operands
        return number

    for number, (label, operands) in enumerate(expression):
        becomes.append(simple(number, label, tuple(becomes[operand] for operand in operands)))
    return needed(nodes, becomes[-1])


def integer(point: dict[str, int], label: str, *values: int) -> int:
    """What a node of an expression of integers means."""
    if values:
        return FUNCTIONS[label](*values)
    return point[label] if label in point else int(label)
