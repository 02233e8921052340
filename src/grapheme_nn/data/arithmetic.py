"""Arithmetic questions in Polish notation, from sums to equations, in seven levels.

An operator stands before its operands, everything is separated by one space, and no brackets are needed. `x` and `y`
are variables; a negative number is one token.

    level             question                      answer
    1 arithmetic      - 12 47                       -35           + - * of two numbers from 0 to 99
    2 nesting         + * 3 4 - 10 2                20            two to four operators
    3 substitution    let x 3 + * 2 x 1             7             let VARIABLE VALUE BODY, one or two of them
    4 functions       + sqrt 49 max 3 8             15            sqrt abs max min gcd mod ^ and ! (factorial)
    5 differentiation diff x * x sin x              + sin x * x cos x
    6 integration     int x + * 6 x 5               + * 3 ^ x 2 * 5 x     the constant of integration is 0
    7 equations       solve x = + * 2 x 1 9         4             the solutions in rising order; / 3 2 is a fraction

A symbolic answer is in its one normal form: everything multiplied out, a sum `+ A + B C` of terms with different
functions of x, each `* NUMBER * ^ x POWER FUNCTION` without the factors that are 1; powers alone come first, the
highest first, then sin, cos, exp and log. Answers are computed here; `polish.confirm` has sympy do it again.
"""

from random import Random

from grapheme_nn.data.polish import Tree, evaluate, to_polish
from grapheme_nn.data.symbolic import differentiation, equation, integration

LEVELS = range(1, 8)
OPERANDS = 100
LEVEL_1_OPERATORS = "+-*"


def most(level: int) -> int:
    """How many distinct questions a level gives: all there are on level 1, a small part of them on the others."""
    return len(LEVEL_1_OPERATORS) * OPERANDS**2 if level == 1 else 100_000


def small_question(number: int) -> tuple[str, str]:
    """The question of level 1 with this number, and its answer."""
    operator, left, right = number // OPERANDS**2, number // OPERANDS % OPERANDS, number % OPERANDS
    tree = (LEVEL_1_OPERATORS[operator], left, right)
    return to_polish(tree), str(evaluate(tree))


def draw_question(random: Random, level: int) -> tuple[str, str]:
    """A question of a level from 2 to 7 drawn by chance, and its answer."""
    draw = {2: _nested, 3: _substitution, 4: _functions, 5: differentiation, 6: integration, 7: equation}[level]
    return draw(random)


def _bounded(tree: Tree, bound: int = 9_999) -> bool:
    return abs(evaluate(tree)) <= bound


def _combined(random: Random, leaves: list[Tree]) -> Tree:
    """A tree over these leaves in this order, its shape and its operators drawn by chance."""
    if len(leaves) == 1:
        return leaves[0]
    cut = random.randrange(1, len(leaves))
    return (random.choice("+-*"), _combined(random, leaves[:cut]), _combined(random, leaves[cut:]))


def _nested(random: Random) -> tuple[str, str]:
    while True:
        tree = _combined(random, [random.randint(0, 20) for _ in range(random.randint(3, 5))])
        if _bounded(tree):
            return to_polish(tree), str(evaluate(tree))


def _substitution(random: Random) -> tuple[str, str]:
    while True:
        names = random.choice([["x"], ["y"], ["x", "y"]])
        others: list[Tree] = [*(random.randint(0, 20) for _ in range(3)), *names]
        leaves = [*names, *random.sample(others, 3)]
        random.shuffle(leaves)
        tree = _combined(random, leaves[: random.randint(len(names) + 1, len(leaves))])
        for name in reversed(names):
            tree = ("let", name, random.randint(0, 20), tree)
        # Every variable must occur in the body, not only after its `let`.
        if all(to_polish(tree).split().count(name) > 1 for name in names) and _bounded(tree):
            return to_polish(tree), str(evaluate(tree))


def _functions(random: Random) -> tuple[str, str]:
    while True:
        tree = _combined(random, [_call(random) for _ in range(random.choice([1, 2, 2, 3]))])
        if _bounded(tree):
            return to_polish(tree), str(evaluate(tree))


def _call(random: Random) -> Tree:
    """A function applied to numbers for which its value is a whole number, or to other calls where all have one."""
    name = random.choice(["sqrt", "abs", "max", "min", "gcd", "mod", "^", "!"])
    number = random.randint(0, 99)
    if name == "sqrt":
        square = random.randint(0, 20) ** 2
        part = random.randint(0, square)
        return (name, random.choice([square, ("+", part, square - part)]))
    if name == "abs":
        return (name, ("-", number, _call(random) if random.random() < 0.3 else random.randint(0, 99)))
    if name in ("max", "min"):
        return (name, number, _call(random) if random.random() < 0.3 else random.randint(0, 99))
    if name == "gcd":
        factor = random.randint(1, 12)
        return (name, factor * random.randint(1, 12), factor * random.randint(1, 12))
    if name == "mod":
        return (name, number, random.randint(2, 12))
    if name == "^":
        return (name, random.randint(2, 9), random.randint(0, 4))
    return (name, random.randint(0, 6))
