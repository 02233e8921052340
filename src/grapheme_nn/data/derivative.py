"""Derivatives of expression DAGs by local rules: every input node becomes a copy of itself, its derivative, or both.

    d x = 1        d(u + v) = du + dv            d sin u = cos u * du
    d c = 0        d(u - v) = du - dv            d cos u = (0 - sin u) * du
                   d(u * v) = du * v + u * dv    d exp u = exp u * du

Nothing is simplified or written twice: u, v and exp u are one node each, however many rules use them.
"""

import math
import operator
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeAlias

from grapheme_nn.data.expressions import Expression, Grammar, Node, draw_expression, evaluate, needed, to_graph
from grapheme_nn.data.graphs import Graph

Key: TypeAlias = tuple[int, int]  # input node, place among the nodes that it becomes

FUNCTIONS: dict[str, Callable[..., float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "sin": math.sin,
    "cos": math.cos,
    "exp": math.exp,
}
GRAMMAR = Grammar(
    leaves=("x",) * 12 + tuple("123456789"),
    operators=(("+", 2), ("-", 2), ("*", 2)) * 3 + (("sin", 1), ("cos", 1), ("exp", 1)),
    stop=0.1,
)
POINTS, TRIES = 3, 12  # where a derivative is verified, and how many are tried to find them


def most(depth: int) -> int:
    """Different expressions of that depth that are asked for: far fewer than there are, but for depth 1."""
    return {1: 60, 2: 5_000}.get(depth, 1_000_000)


def draw_derivative(random: Random, depth: int) -> tuple[Graph, Graph]:
    """An expression of that depth with an x in it, and its derivative, verified at `POINTS` points.

    An expression too large to be evaluated, such as exp(exp(9)), is left out.
    """
    while True:
        expression = draw_expression(random, GRAMMAR, depth)
        if any(label == "x" for label, _ in expression):
            derivative = differentiate(expression)
            if confirm_derivative(expression, derivative, random):
                return to_graph(expression), to_graph(derivative)


def differentiate(expression: Expression) -> list[Node]:
    """The derivative, made of the nodes that it needs.

    Their order: input node by input node, its copy first, then its rule, operands before operators.
    """
    # Of input node i: its copy is (i, 0), the nodes of its rule follow, the last of them is its derivative.
    nodes: dict[Key, tuple[str, tuple[Key, ...]]] = {}
    derivatives: list[Key] = []
    for number, (label, operands) in enumerate(expression):
        copy, first, second, third = ((number, place) for place in range(4))
        values = tuple((operand, 0) for operand in operands)
        rule = _rule(label, copy, first, second, third, values, tuple(derivatives[operand] for operand in operands))
        nodes[copy] = label, values
        nodes.update(((number, place), node) for place, node in enumerate(rule, 1))
        derivatives.append((number, len(rule)))
    return needed(nodes, derivatives[-1])


def _rule(
    label: str, copy: Key, first: Key, second: Key, third: Key, values: tuple[Key, ...], changes: tuple[Key, ...]
) -> list[tuple[str, tuple[Key, ...]]]:
    """The nodes of the rule for one node: its derivative is the last, the others are called by their places."""
    if label in ("+", "-"):
        return [(label, changes)]
    if label == "*":
        return [("*", (changes[0], values[1])), ("*", (values[0], changes[1])), ("+", (first, second))]
    if label == "sin":
        return [("cos", values), ("*", (first, *changes))]
    if label == "cos":
        return [("0", ()), ("sin", values), ("-", (first, second)), ("*", (third, *changes))]
    if label == "exp":
        return [("*", (copy, *changes))]
    return [("1" if label == "x" else "0", ())]


def confirm_derivative(expression: Expression, derivative: Expression, random: Random) -> bool:
    """Compare the derivative with dual numbers evaluated on the expression at points drawn by chance.

    False where too few points give finite values; an `AssertionError` where the two disagree.
    """
    found = 0
    for _ in range(TRIES):
        x = random.uniform(-2, 2)
        try:
            asked, given = evaluate(expression, partial(dual, x))[1], evaluate(derivative, partial(real, x))
        except (OverflowError, ValueError):  # exp of too much, sin of infinity
            continue
        if math.isfinite(asked) and math.isfinite(given):
            if not math.isclose(asked, given, rel_tol=1e-6, abs_tol=1e-9):
                raise AssertionError(f"at x = {x} the derivative is {asked}, but the rules give {given}")
            found += 1
            if found == POINTS:
                return True
    return False


def real(x: float, label: str, *values: float) -> float:
    """What a node of an expression in x means."""
    if values:
        return FUNCTIONS[label](*values)
    return x if label == "x" else float(label)


def dual(x: float, label: str, *values: tuple[float, float]) -> tuple[float, float]:
    """A node's value and its derivative by x: forward-mode automatic differentiation."""
    value = real(x, label, *(u for u, _ in values))
    if not values:
        return value, float(label == "x")
    (u, du), (v, dv) = values[0], values[-1]
    slopes = {
        "+": lambda: du + dv,
        "-": lambda: du - dv,
        "*": lambda: u * dv + v * du,
        "sin": lambda: math.cos(u) * du,
        "cos": lambda: -math.sin(u) * du,
        "exp": lambda: value * du,
    }
    return value, slopes[label]()
