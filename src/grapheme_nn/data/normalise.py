"""Normal forms of Python's conditions: `not (a < b <= 3) or True and c` as a tree, chains and negations resolved.

The input is Python's own tree (`ast`) with two changes: `and` and `or` are binary, nested to the left, and a comparison
is its sign with the operands 0 and 1; a chain of them, `a < b <= c`, is a node "compare" with the comparisons as its
operands, which share what stands between them, as Python looks at it once. Rules, by which truth stays the same:

    a < b <= c -> a < b and b <= c                       not (u and v) -> not u or not v     u and True -> u
    not (a < b) -> a >= b                                not (u or v) -> not u and not v     u and False -> False
    not not u -> u                                       not True -> False                   u or True -> True
    2 < 3 -> True, and so on for any two constants       not False -> True                   u or False -> u
"""

import ast
import operator
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from random import Random
from typing import TypeAlias

from grapheme_nn.data.expressions import Expression, Node, evaluate, needed, to_graph
from grapheme_nn.data.graphs import Graph

Key: TypeAlias = tuple[int, int]

NAMES, CONSTANTS = tuple("abcde"), tuple("0123")
SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
OPPOSITE |= {"and": "or", "or": "and", "True": "False", "False": "True"}
STOP = 0.2  # probability that a branch ends before the full depth
POINTS = 8  # where an answer is verified


def most(depth: int) -> int:
    """Different conditions of that depth that are asked for: far fewer than there are."""
    return {1: 2_000, 2: 50_000}.get(depth, 1_000_000)


def draw_normalise(random: Random, depth: int) -> tuple[Graph, Graph]:
    """A condition of that depth, and its normal form, which is as true as Python finds the condition."""
    text = draw_condition(random, depth)
    tree = ast.parse(text, mode="eval")
    condition = from_python(tree.body)
    normal = normalise(condition)
    program = compile(tree, "<condition>", "eval")
    for _ in range(POINTS):
        point = {name: random.randint(0, 9) * random.randint(0, 1) for name in NAMES}
        asked, given = bool(eval(program, dict(point))), bool(evaluate(normal, partial(truth, point)))
        if asked != given:
            raise AssertionError(f"at {point} {text} is {asked}, but its normal form is {given}")
    return to_graph(condition), to_graph(normal)


def draw_condition(random: Random, depth: int, exact: bool = True) -> str:
    """The text of a condition; its tree's longest path has exactly, or at most, `depth` edges."""
    if not depth or (not exact and random.random() < STOP):
        return random.choice([*NAMES * 3, "True", "False"])
    kinds = ["not", "not", "and", "and", "or", "or"]
    if depth <= 2 or not exact:
        kinds += ["compare"] * 6
    kind = random.choice(kinds)
    if kind == "not":
        return f"(not {draw_condition(random, depth - 1, exact)})"
    if kind == "compare":
        text = _operand(random)
        # A chain is two edges deep.
        count = 1 if depth == 1 else random.choice([2, 2, 3] if exact else [1, 1, 2, 2, 3])
        for sign in random.choices(list(COMPARE), k=count):
            text += f" {sign} {_operand(random)}"
        return f"({text})"
    sides = [draw_condition(random, depth - 1, exact), draw_condition(random, depth - 1, False)]
    random.shuffle(sides)
    return f"({sides[0]} {kind} {sides[1]})"


def _operand(random: Random) -> str:
    return random.choice(NAMES if random.random() < 0.75 else CONSTANTS)


def from_python(tree: ast.expr) -> list[Node]:
    """Python's tree of a condition as an expression."""
    nodes: list[Node] = []

    def add(label: str, *operands: int) -> int:
        nodes.append(Node(label, operands))
        return len(nodes) - 1

    def read(tree: ast.expr) -> int:
        match tree:
            case ast.Name(id=name):
                return add(name)
            case ast.Constant(value=value):
                return add(str(value))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return add("not", read(operand))
            case ast.BoolOp(op=kind, values=[first, *others]):
                node = read(first)
                for other in others:
                    node = add("and" if isinstance(kind, ast.And) else "or", node, read(other))
                return node
            case ast.Compare(left=left, ops=kinds, comparators=others):
                operands = [read(operand) for operand in (left, *others)]
                signs = [SIGNS[type(kind)] for kind in kinds]
                if len(signs) == 1:
                    return add(signs[0], *operands)
                return add("compare", *(add(sign, *ends) for sign, ends in zip(signs, pairwise(operands), strict=True)))
        raise ValueError(f"{ast.unparse(tree)} is no condition: and, or, not, comparisons, names and constants are")

    read(tree)
    return nodes


def normalise(condition: Expression) -> list[Node]:
    """The normal form, its nodes in the order of the input nodes that they come from.

    The node of a chain becomes the `and` of its comparisons, or the `or` if it is denied.
    """
    # By input node, and twice its place among the nodes that it becomes, plus 1 where it is denied.
    nodes: dict[Key, tuple[str, tuple[Key, ...]]] = {}

    def add(key: Key, label: str, *operands: Key) -> Key:
        nodes[key] = label, operands
        return key

    def compare(number: int, sign: str, left: int, right: int, denied: bool) -> Key:
        sign = OPPOSITE[sign] if denied else sign
        labels = condition[left].label, condition[right].label
        if all(label in CONSTANTS for label in labels):
            return add((number, denied), str(COMPARE[sign](*map(int, labels))))
        return add((number, denied), sign, *(add((i, 0), condition[i].label) for i in (left, right)))

    def join(key: Key, label: str, left: Key, right: Key) -> Key:
        neutral = "True" if label == "and" else "False"
        for side, other in ((left, right), (right, left)):
            if nodes[side][0] == neutral:
                return other
            if nodes[side][0] == OPPOSITE[neutral]:
                return side
        return add(key, label, left, right)

    def normal(number: int, denied: bool) -> Key:
        """The node that an input node, or its denial, becomes."""
        label, operands = condition[number]
        if label == "not":
            return normal(operands[0], not denied)
        if label in ("and", "or"):
            left, right = (normal(operand, denied) for operand in operands)
            return join((number, denied), OPPOSITE[label] if denied else label, left, right)
        if label in COMPARE:
            return compare(number, label, operands[0], operands[1], denied)
        if label == "compare":
            parts = [normal(operand, denied) for operand in operands]
            whole = parts[0]
            for place, part in enumerate(parts[1:]):
                whole = join((number, 2 * place + denied), "or" if denied else "and", whole, part)
            return whole
        if label in ("True", "False"):
            return add((number, denied), OPPOSITE[label] if denied else label)
        name = add((number, 0), label)
        return add((number, 1), "not", name) if denied else name

    return needed(nodes, normal(len(condition) - 1, False))


def truth(point: dict[str, int], label: str, *values: int) -> int:
    """What a node of a normal form means; a number is true where it is not 0."""
    if label in COMPARE:
        return COMPARE[label](*values)
    if label == "not":
        return not values[0]
    if label in ("and", "or"):
        return bool(values[0] and values[1] if label == "and" else values[0] or values[1])
    constants = {"True": 1, "False": 0}
    return point[label] if label in point else constants[label] if label in constants else int(label)
