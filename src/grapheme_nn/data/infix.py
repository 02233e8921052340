"""Infix texts and their trees: `a+b*(c-2)` is parsed into a tree, and written from it with the fewest brackets.

Leaves are single letters and digits; `*` and `/` bind more strongly than `+` and `-`; all are left-associative.
"""

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from random import Random

from grapheme_nn.data.expressions import Node, evaluate, from_graph, to_graph
from grapheme_nn.data.graphs import Graph

LETTERS, DIGITS = "abcxyz", "0123456789"
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
OPERATORS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
DEEPEST = 3  # brackets within brackets
BRACKETED = 0.35  # of the operands, where there is room
BARE = 0.1  # of the brackets may hold a single letter
POINTS, TRIES = 3, 12  # where a tree is verified, and how many are tried to find them


def most(length: int) -> int:
    """Different texts of at most that length that are asked for: far fewer than there are."""
    return 10_000 if length < 7 else 1_000_000


def draw_parse(random: Random, length: int) -> tuple[str, Graph]:
    """A text of at most `length` characters, and its tree, which Python's own parser confirmed.

    A text that divides by zero wherever it is evaluated, such as `a/(b-b)`, is left out.
    """
    while True:
        text = draw_text(random, length)
        tree = parse(text)
        if confirm_parse(text, tree, random):
            return text, tree


def draw_unparse(random: Random, length: int) -> tuple[Graph, str]:
    """A tree, operands first, and its text with the fewest brackets, at most `length` characters; it was read back."""
    wanted = random.randrange(3, length + 1, 2)
    text = ""
    while len(text) != wanted:  # some brackets are redundant, so that the text becomes shorter
        tree = from_graph(parse(_draw(random, wanted + 2 * random.randint(0, wanted // 8), DEEPEST)))
        text = unparse(tree)
    if from_graph(parse(text)) != tree:
        raise AssertionError(f"{text!r} was written for another tree than it is read as")
    return to_graph(tree), text


def draw_text(random: Random, length: int) -> str:
    """A text of 3 to `length` characters, each length as likely; brackets may be redundant."""
    # Every text has an odd length: operators stand between operands, and brackets come in pairs.
    return _draw(random, random.randrange(3, length + 1, 2), DEEPEST)


def _draw(random: Random, length: int, nesting: int) -> str:
    """A text of exactly that length."""
    text = ""
    while True:
        room = length - len(text)
        shortest = 1 if random.random() < BARE else 3  # between brackets
        if room >= shortest + 2 and nesting and random.random() < BRACKETED:
            text += f"({_draw(random, random.randrange(shortest, room - 1, 2), nesting - 1)})"
        else:
            text += random.choice(LETTERS if random.random() < 0.6 else DIGITS)
        if len(text) == length:
            return text
        text += random.choice("+-*/")


def parse(text: str) -> Graph:
    """The tree of a text: nodes in the order of their characters, edges from operands to operators.

    Operator precedence parsing with two stacks (Dijkstra, 1961).
    """
    nodes: list[str] = []
    edges: list[tuple[int, int, int]] = []
    operands: list[int] = []
    waiting: list[int | None] = []  # operators, and None where a bracket opened

    def reduce(precedence: int) -> None:
        """Give the operators that bind at least so strongly their operands."""
        while waiting and waiting[-1] is not None and PRECEDENCE[nodes[waiting[-1]]] >= precedence:
            right, left, node = operands.pop(), operands.pop(), waiting.pop()
            assert node is not None
            edges.extend([(left, node, 0), (right, node, 1)])
            operands.append(node)

    for character in text:
        if character == "(":
            waiting.append(None)
        elif character == ")":
            reduce(0)
            waiting.pop()
        else:
            if character in PRECEDENCE:
                reduce(PRECEDENCE[character])
                waiting.append(len(nodes))
            else:
                operands.append(len(nodes))
            nodes.append(character)
    reduce(0)
    return Graph(tuple(nodes), tuple(sorted(edges, key=lambda edge: (edge[1], edge[2]))))


def unparse(tree: list[Node]) -> str:
    """The text of a tree with the fewest brackets from which `parse` makes the same tree."""

    def write(label: str, *operands: tuple[str, int]) -> tuple[str, int]:
        """A text and its precedence."""
        if not operands:
            return label, 3
        (left, binds), (right, also_binds) = operands
        precedence = PRECEDENCE[label]
        left = left if binds >= precedence else f"({left})"
        right = right if also_binds > precedence else f"({right})"
        return f"{left}{label}{right}", precedence

    return evaluate(tree, write)[0]


def confirm_parse(text: str, tree: Graph, random: Random) -> bool:
    """Compare the tree with Python's own value of the text at points drawn by chance.

    False where too few points avoid a division by zero; an `AssertionError` where the two disagree.
    """
    # A digit is a name too, because Python would divide two of them as floats.
    program = compile(re.sub(r"(\d)", r"_\1", text), "<text>", "eval")
    expression = from_graph(tree)
    found = 0
    for _ in range(TRIES):
        values = {letter: Fraction(random.randint(1, 99), random.randint(1, 9)) for letter in LETTERS}
        values |= {digit: Fraction(digit) for digit in DIGITS}

        def meaning(label: str, *operands: Fraction, values: dict[str, Fraction] = values) -> Fraction:
            return OPERATORS[label](*operands) if operands else values[label]

        try:
            asked = eval(program, {f"_{name}" if name in DIGITS else name: value for name, value in values.items()})
            given = evaluate(expression, meaning)
        except ZeroDivisionError:
            continue
        if asked != given:
            raise AssertionError(f"{text!r} is {asked} to Python, but {given} by its tree")
        found += 1
        if found == POINTS:
            return True
    return False
