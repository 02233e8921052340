import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import arithmetic, generate
from grapheme_nn.data.polish import confirm, evaluate, sympy_values, to_polish


def number_at(tokens: list[str], x: float) -> float:
    """A referee of its own: the value of an expression in floating point, read from left to right."""
    token = tokens.pop(0)
    if token == "x":
        return x
    if token in ("sin", "cos", "exp", "log"):
        return getattr(math, token)(number_at(tokens, x))
    if token in ("+", "*", "^"):
        left, right = number_at(tokens, x), number_at(tokens, x)
        return left + right if token == "+" else left * right if token == "*" else left**right
    return float(token)


def slope_at(text: str, x: float) -> float:
    step = 1e-5
    return (number_at(text.split(), x + step) - number_at(text.split(), x - step)) / (2 * step)


def test_level_1_is_all_sums_differences_and_products_up_to_99():
    pairs = generate("arithmetic", 30_000, 0, 1)
    for question, answer, _ in pairs:
        operator, left, right = question.split()
        assert str(eval(f"{left} {operator} {right}")) == answer
    assert {pair.input.split()[0] for pair in pairs} == {"+", "-", "*"}


@pytest.mark.parametrize("level", [2, 3, 4])
def test_answers_of_the_levels_with_numbers_are_whole_and_small(level):
    assert all(abs(int(pair.target)) <= 9_999 for pair in generate("arithmetic", 200, 0, level))


def test_level_2_nests():
    assert all(sum(token in "+-*" for token in pair.input.split()) >= 2 for pair in generate("arithmetic", 200, 0, 2))


def test_level_3_uses_every_variable_it_introduces():
    for question, _, _ in generate("arithmetic", 200, 0, 3):
        tokens = question.split()
        names = [name for let, name in pairwise(tokens) if let == "let"]
        assert names
        assert all(tokens.count(name) > 1 for name in names)


def test_level_4_has_every_function():
    words = {token for pair in generate("arithmetic", 300, 0, 4) for token in pair.input.split()}
    assert {"sqrt", "abs", "max", "min", "gcd", "mod", "^", "!"} <= words


def test_level_5_is_the_slope_of_its_question():
    for question, answer, _ in generate("arithmetic", 200, 0, 5):
        slope = slope_at(question.removeprefix("diff x "), 0.7)
        assert number_at(answer.split(), 0.7) == pytest.approx(slope, rel=1e-5, abs=1e-4), question


def test_the_slope_of_an_answer_of_level_6_is_its_question():
    for question, answer, _ in generate("arithmetic", 200, 0, 6):
        asked = number_at(question.removeprefix("int x ").split(), 0.7)
        assert slope_at(answer, 0.7) == pytest.approx(asked, rel=1e-5, abs=1e-4), question


def test_solutions_of_level_7_solve_and_rise():
    for question, answer, _ in generate("arithmetic", 200, 0, 7):
        solutions = sympy_values(answer)
        for solution in map(float, solutions):
            tokens = question.removeprefix("solve x = ").split()
            assert number_at(tokens, solution) == pytest.approx(number_at(tokens, solution))
            assert tokens == []
        assert solutions == sorted(set(solutions))


@pytest.mark.parametrize("level", [5, 6])
def test_symbolic_answers_are_in_normal_form(level):
    for _, answer, _ in generate("arithmetic", 200, 0, level):
        assert "-" not in answer.split()  # a difference is a sum with a negative number
        assert "* 1 " not in answer
        assert "^ x 1 " not in f"{answer} "
        assert " 0 " not in f" {answer} "
        assert "+ +" not in answer  # sums lean to the right
        assert "* +" not in answer  # and are multiplied out


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("+ 1 2", "3"),
        ("let x 3 + * 2 x 1", "7"),
        ("let x 2 let y 5 - x y", "-3"),
        ("+ sqrt 49 max 3 8", "15"),
        ("+ gcd 12 18 - mod 17 5 min ! 3 ^ 2 2", "4"),
        ("diff x * x sin x", "+ sin x * x cos x"),
        ("int x + * 6 x 5", "+ * 3 ^ x 2 * 5 x"),
        ("solve x = + * 2 x 1 9", "4"),
        ("solve x = * 2 x 3", "/ 3 2"),
        ("solve x = ^ x 2 9", "-3 3"),
    ],
)
def test_sympy_confirms_a_right_answer(question, answer):
    confirm(question, answer)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("+ 1 2", "4"),
        ("- 1 2", "1"),
        ("diff x ^ x 2", "x"),
        ("int x * 2 x", "+ ^ x 2 1"),
        ("int x * 2 x", "* 2 ^ x 2"),
        ("solve x = ^ x 2 9", "3"),
        ("solve x = ^ x 2 9", "-3"),
        ("solve x = ^ x 2 9", "3 -3"),
        ("solve x = * 2 x 3", "/ 2 3"),
    ],
)
def test_sympy_refuses_a_wrong_answer(question, answer):
    with pytest.raises(AssertionError, match="sympy does not find"):
        confirm(question, answer)


@pytest.mark.parametrize("level", [1, 5])
def test_a_wrong_answer_does_not_get_out(monkeypatch, level):
    monkeypatch.setattr(arithmetic, "small_question", lambda number: ("+ 1 2", "4"))
    monkeypatch.setattr(arithmetic, "draw_question", lambda random, level: ("diff x x", "x"))
    with pytest.raises(AssertionError, match="sympy does not find"):
        generate("arithmetic", 1, 0, level)


trees = st.recursive(
    st.integers(-20, 20), lambda tree: st.tuples(st.sampled_from(["+", "-", "*", "max", "min"]), tree, tree)
)


@given(trees)
def test_our_arithmetic_agrees_with_sympy(tree):
    confirm(to_polish(tree), str(evaluate(tree)))


@pytest.mark.parametrize("level", range(2, 8))
def test_few_questions_are_drawn_in_vain(monkeypatch, level):
    drawn, draw = [], arithmetic.draw_question
    monkeypatch.setattr(arithmetic, "draw_question", lambda *given: drawn.append(0) or draw(*given))
    generate("arithmetic", 100, 1, level)
    assert len(drawn) < 200
