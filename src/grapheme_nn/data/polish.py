"""Expression trees in Polish notation: printed, evaluated over the integers, and verified by sympy."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

Tree: TypeAlias = int | str | tuple[Any, ...]  # a number, a variable, or (operator, operand, ...)


def to_polish(tree: Tree) -> str:
    """The text of a tree, one space between any two tokens."""
    return " ".join(map(to_polish, tree)) if isinstance(tree, tuple) else str(tree)


def evaluate(tree: Tree, variables: dict[str, int] | None = None) -> int:
    """The value of a tree of whole numbers."""
    variables = variables or {}
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return variables[tree]
    operator, *operands = tree
    if operator == "let":
        name, value, body = operands
        return evaluate(body, variables | {name: evaluate(value, variables)})
    compute: dict[str, Callable[..., int]] = {
        "+": int.__add__,
        "-": int.__sub__,
        "*": int.__mul__,
        "^": pow,
        "max": max,
        "min": min,
        "gcd": math.gcd,
        "mod": int.__mod__,
        "sqrt": math.isqrt,
        "abs": abs,
        "!": math.factorial,
    }
    return compute[operator](*(evaluate(operand, variables) for operand in operands))


def sympy_values(text: str) -> list[Any]:
    """What a text in Polish notation means to sympy: its values, several for the solutions of an equation."""
    import sympy  # takes longer to import than everything else a small command does

    x, y = sympy.symbols("x y")
    binary: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: sympy.Rational(a, b),
        "^": lambda a, b: a**b,
        "=": lambda a, b: a - b,
        "max": sympy.Max,
        "min": sympy.Min,
        "gcd": sympy.gcd,
        "mod": sympy.Mod,
        "diff": lambda variable, body: sympy.diff(body, variable),
    }
    unary = {
        "sqrt": sympy.sqrt,
        "abs": sympy.Abs,
        "!": sympy.factorial,
        "sin": sympy.sin,
        "cos": sympy.cos,
        "exp": sympy.exp,
        "log": sympy.log,
    }
    stack: list[Any] = []
    for token in reversed(text.split()):
        if token in ("x", "y"):
            stack.append(x if token == "x" else y)
        elif token in unary:
            stack.append(unary[token](stack.pop()))
        elif token in binary:
            stack.append(binary[token](stack.pop(), stack.pop()))
        elif token == "let":
            variable, value, body = stack.pop(), stack.pop(), stack.pop()
            stack.append(body.subs(variable, value))
        elif token == "solve":
            variable, zero = stack.pop(), stack.pop()
            stack += sorted(sympy.roots(sympy.Poly(zero, variable)), reverse=True)
        else:
            stack.append(sympy.Integer(token))
    return stack[::-1]


def confirm(question: str, answer: str) -> None:
    """Let sympy find the answer too, from the two texts alone; an `AssertionError` where it finds another one."""
    import sympy

    constant = 0
    if question.startswith("int x "):
        # The other way round, because a derivative has one form and an antiderivative many.
        asked, given = sympy_values(question.removeprefix("int x ")), sympy_values(f"diff x {answer}")
        constant = sympy.expand(sympy_values(answer)[0]).as_coeff_Add()[0]
    else:
        asked, given = sympy_values(question), sympy_values(answer)
    if constant or len(asked) != len(given) or any(sympy.expand(a - b) for a, b in zip(asked, given, strict=True)):
        raise AssertionError(f"sympy does not find {answer!r} for {question!r}")
