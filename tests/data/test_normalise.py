"""The task of normal forms of Python's conditions."""

import ast
from itertools import product
from statistics import mean

import pytest

from grapheme_nn.data import generate
from grapheme_nn.data import normalise as module
from grapheme_nn.data.expressions import evaluate, from_graph, to_graph, to_prefix
from grapheme_nn.data.graphs import Graph
from grapheme_nn.data.normalise import COMPARE, from_python, normalise


def read(text):
    return from_python(ast.parse(text, mode="eval").body)


def test_a_chain_holds_its_comparisons_which_share_the_operand_in_the_middle():
    assert to_graph(read("a < b <= 3")) == Graph(
        ("a", "b", "3", "<", "<=", "compare"), ((0, 3, 0), (1, 3, 1), (1, 4, 0), (2, 4, 1), (3, 5, 0), (4, 5, 1))
    )


def test_and_and_or_are_binary_and_a_single_comparison_is_its_sign():
    assert to_prefix(to_graph(read("a and b and c or d < 3"))) == "or and and a b c < d 3"


def test_the_operand_in_the_middle_of_a_chain_is_one_node():
    assert to_graph(normalise(read("a < b <= 3"))) == Graph(
        ("a", "b", "3", "<", "<=", "and"), ((0, 3, 0), (1, 3, 1), (1, 4, 0), (2, 4, 1), (3, 5, 0), (4, 5, 1))
    )


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("a < b < c < d", "and and < a b < b c < c d"),
        ("not (a < b < c)", "or >= a b >= b c"),
        ("not (a < b < c < d)", "or or >= a b >= b c >= c d"),
        ("not a", "not a"),
        ("not not a", "a"),
        ("not not not a", "not a"),
        ("not (a and b)", "or not a not b"),
        ("not (a or not b)", "and not a b"),
        ("not (a < b)", ">= a b"),
        ("not (a >= b)", "< a b"),
        ("not (a > b)", "<= a b"),
        ("not (a <= b)", "> a b"),
        ("not (a == b)", "!= a b"),
        ("not (a != b)", "== a b"),
        ("a and True", "a"),
        ("True and a", "a"),
        ("a and False", "False"),
        ("a or True", "True"),
        ("False or a", "a"),
        ("not True", "False"),
        ("not (False and a)", "True"),
        ("2 < 3", "True"),
        ("not (2 < 3)", "False"),
        ("1 < 2 < c", "< 2 c"),
        ("a < 3 < 2", "False"),
        ("a and (b or 3 != 3) and not (c and 1 > 2)", "and a b"),
        ("a < a", "< a a"),
    ],
)
def test_each_rule_is_the_stated_one(text, normal):
    assert to_prefix(to_graph(normalise(read(text)))) == normal


def test_python_finds_the_normal_form_as_true_as_the_condition():
    def python(label, *values):
        if label == "not":
            return f"(not {values[0]})"
        return f"({values[0]} {label} {values[1]})" if values else label

    for text in ("not (a < b < 2) or not (a and not b == c)", "not (not a or b >= c > a) and (c or a != 1 < b)"):
        normal = evaluate(normalise(read(text)), python)
        for values in product(range(3), repeat=3):
            names = dict(zip("abc", values, strict=True))
            assert bool(eval(text, dict(names))) == bool(eval(normal, dict(names)))


def test_a_normal_form_has_negations_only_before_names_and_constants_only_in_comparisons():
    pairs = generate("normalise", 500, 0)
    for pair in pairs:
        nodes = from_graph(pair.target)
        for label, operands in nodes:
            below = [nodes[operand].label for operand in operands]
            assert label != "compare"
            assert label != "not" or below[0] in {*"abcde"}
            assert not {"True", "False"} & set(below)
            assert label not in COMPARE or not all(map(str.isdigit, below))
    assert {label for pair in pairs for label in pair.input.nodes} == {
        *"abcde0123", *COMPARE, "and", "or", "not", "compare", "True", "False"
    }  # fmt: skip


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_conditions_have_their_depth(depth):
    pairs = generate("normalise", 200, 0, depth=depth)
    heights = {evaluate(from_graph(pair.input), lambda label, *below: 1 + max(below, default=-1)) for pair in pairs}
    assert heights == {depth}


def test_conditions_seldom_collapse_to_a_constant():
    pairs = generate("normalise", 1000, 0)
    assert mean(len(pair.target.nodes) == 1 for pair in pairs) < 0.2
    assert mean("compare" in pair.input.nodes for pair in pairs) > 0.3


def test_what_is_no_condition_is_refused():
    with pytest.raises(ValueError, match=r"a \+ b is no condition"):
        read("not (a + b)")


def test_a_wrong_normal_form_does_not_get_out(monkeypatch):
    def wrong(condition):
        return [node._replace(label=">=" if node.label == ">" else node.label) for node in normalise(condition)]

    monkeypatch.setattr(module, "normalise", wrong)
    with pytest.raises(AssertionError, match="but its normal form is"):
        generate("normalise", 500, 0)
