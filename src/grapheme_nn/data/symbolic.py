"""Symbolic calculus in x: derivatives, antiderivatives and equations, with answers in one normal form."""

from fractions import Fraction
from random import Random
from typing import TypeAlias

from grapheme_nn.data.polish import Tree, to_polish

# A sum of terms: coefficient of x^power * function(k x), by (function, k, power). Where there is no function, k is 0.
Sum: TypeAlias = dict[tuple[str, int, int], int]

FUNCTIONS = ("", "sin", "cos", "exp", "log")


def differentiation(random: Random) -> tuple[str, str]:
    """`diff x BODY`, where the body is a sum, a product or a power, and the derivative, multiplied out."""
    shape = random.choice(["sum", "sum", "product", "power"])
    if shape == "sum":
        total = _drawn_sum(random)
        body = _tree(total)
    else:
        line = {("", 0, 1): _coefficient(random), ("", 0, 0): _coefficient(random)}
        if shape == "product":
            function, k = _function(random)
            body = ("*", _tree(line), _function_tree(function, k))
            total = {(function, k, power): value for (_, _, power), value in line.items()}
        else:
            exponent = random.choice([2, 2, 3])
            body = ("^", _tree(line), exponent)
            total = line
            for _ in range(exponent - 1):
                total = _times_powers(total, line)
    return f"diff x {to_polish(body)}", to_polish(_tree(_derivative(total)))


def integration(random: Random) -> tuple[str, str]:
    """`int x BODY`, and the antiderivative without a constant."""
    # From the answer to the question: differentiating always succeeds.
    answer = _drawn_sum(random)
    return f"int x {to_polish(_tree(_derivative(answer)))}", to_polish(_tree(answer))


def equation(random: Random) -> tuple[str, str]:
    """`solve x = LEFT RIGHT`, linear or quadratic, and its solutions in rising order."""
    left: Sum
    right: Sum
    shape = random.choice(["one side", "two sides", "square"])
    if shape == "square":
        lead = random.randint(1, 5)
        first, second = random.randint(-12, 12), random.randint(-12, 12)
        moved = random.choice([0, random.randint(-20, 20)])
        left = {("", 0, 2): lead, ("", 0, 1): -lead * (first + second), ("", 0, 0): lead * first * second + moved}
        right = {("", 0, 0): moved}
        solutions = {Fraction(first), Fraction(second)}
    else:
        slope, constant = _coefficient(random, 12), random.randint(-20, 20)
        left = {("", 0, 1): slope, ("", 0, 0): constant}
        if shape == "one side":
            solution = random.randint(-20, 20)
            right = {("", 0, 0): slope * solution + constant}
            solutions = {Fraction(solution)}
        else:
            other = random.choice([value for value in range(-12, 13) if value not in (0, slope)])
            shift = random.randint(-20, 20)
            right = {("", 0, 1): other, ("", 0, 0): shift}
            solutions = {Fraction(shift - constant, slope - other)}
    answer = " ".join(
        str(value) if value.denominator == 1 else f"/ {value.numerator} {value.denominator}"
        for value in sorted(solutions)
    )
    return f"solve x = {to_polish(_tree(left))} {to_polish(_tree(right))}", answer


def _coefficient(random: Random, most: int = 9) -> int:
    return random.randint(1, most) * random.choice([1, 1, -1])


def _function(random: Random) -> tuple[str, int]:
    function = random.choice(FUNCTIONS[1:])
    return function, 1 if function == "log" else random.randint(1, 5)


def _drawn_sum(random: Random) -> Sum:
    """One to three different terms, none of them a constant."""
    total: Sum = {}
    for _ in range(random.choice([1, 2, 2, 3])):
        if random.random() < 0.6:
            total["", 0, random.randint(1, 5)] = _coefficient(random)
        else:
            function, k = _function(random)
            total[function, k, random.choice([0, 0, 1])] = _coefficient(random)
    return total


def _derivative(total: Sum) -> Sum:
    """Term by term, by the rules for powers, products and functions of k x."""
    result: Sum = {}

    def add(function: str, k: int, power: int, value: int) -> None:
        result[function, k, power] = result.get((function, k, power), 0) + value

    for (function, k, power), value in total.items():
        add(function, k, power - 1, power * value)
        if function == "sin":
            add("cos", k, power, k * value)
        elif function == "cos":
            add("sin", k, power, -k * value)
        elif function == "exp":
            add("exp", k, power, k * value)
        elif function == "log":
            add("", 0, power - 1, value)
    return result


def _times_powers(left: Sum, right: Sum) -> Sum:
    """The product of two sums of powers, multiplied out."""
    result: Sum = {}
    for (_, _, power), value in left.items():
        for (_, _, other_power), other in right.items():
            key = ("", 0, power + other_power)
            result[key] = result.get(key, 0) + value * other
    return result


def _tree(total: Sum) -> Tree:
    """The normal form of a sum."""
    keys = sorted((FUNCTIONS.index(function), k, -power) for (function, k, power), value in total.items() if value)
    terms = [_term(FUNCTIONS[place], k, -minus, total[FUNCTIONS[place], k, -minus]) for place, k, minus in keys]
    return _chain("+", terms) if terms else 0


def _term(function: str, k: int, power: int, value: int) -> Tree:
    factors: list[Tree] = [value] if value != 1 else []
    if power:
        factors.append("x" if power == 1 else ("^", "x", power))
    if function:
        factors.append(_function_tree(function, k))
    return _chain("*", factors) if factors else value


def _function_tree(function: str, k: int) -> Tree:
    return (function, "x" if k == 1 else ("*", k, "x"))


def _chain(operator: str, operands: list[Tree]) -> Tree:
    tree = operands[-1]
    for operand in reversed(operands[:-1]):
        tree = (operator, operand, tree)
    return tree
