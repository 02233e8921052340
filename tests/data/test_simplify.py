"""The task of simplified expressions."""

from random import Random
from statistics import mean

import pytest
import sympy

from grapheme_nn.data import generate
from grapheme_nn.data import simplify as module
from grapheme_nn.data.expressions import Node, draw_expression, evaluate, from_graph, to_graph, to_prefix
from grapheme_nn.data.graphs import Graph
from grapheme_nn.data.simplify import simplify


def tree(text):
    """The tree of a text in Polish notation."""
    words = text.split()[::-1]
    nodes = []

    def read():
        word = words.pop()
        operands = tuple(read() for _ in range({"neg": 1, "+": 2, "-": 2, "*": 2}.get(word, 0)))
        nodes.append(Node(word, operands))
        return len(nodes) - 1

    read()
    return nodes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("+ x 0", "x"),
        ("+ 0 x", "x"),
        ("- x 0", "x"),
        ("* x 1", "x"),
        ("* 1 x", "x"),
        ("* x 0", "0"),
        ("* 0 x", "0"),
        ("neg neg x", "x"),
        ("neg 0", "0"),
        ("- 0 x", "neg x"),
        ("- 0 neg x", "x"),
        ("- 0 0", "0"),
        ("+ 4 5", "9"),
        ("+ 5 5", "+ 5 5"),
        ("- 3 4", "- 3 4"),
        ("* 3 3", "9"),
        ("* 4 3", "* 4 3"),
        ("neg 4", "neg 4"),
        ("- x x", "- x x"),
        ("- 1 x", "- 1 x"),
        ("- x 1", "- x 1"),
        ("+ 1 x", "+ 1 x"),
        ("+ neg * z 0 * - 4 3 y", "y"),
        ("* - 2 2 + x y", "0"),
        ("- - x x * y - 1 1", "- x x"),
    ],
)
def test_each_rule_is_the_stated_one(before, after):
    assert to_prefix(to_graph(simplify(tree(before)))) == after


def test_what_is_shared_stays_shared_and_in_its_order():
    # (x + y) * ((x + y) + 0), where x + y is one node
    expression = [Node("x"), Node("y"), Node("+", (0, 1)), Node("0"), Node("+", (2, 3)), Node("*", (2, 4))]
    assert to_graph(simplify(expression)) == Graph(("x", "y", "+", "*"), ((0, 2, 0), (1, 2, 1), (2, 3, 0), (2, 3, 1)))


def test_what_is_simple_stays_as_it_is():
    for seed in range(200):
        simple = simplify(draw_expression(Random(seed), module.GRAMMAR, 4))
        assert simplify(simple) == simple


def test_sympy_finds_the_same_values():
    operators = {"+": lambda u, v: u + v, "-": lambda u, v: u - v, "*": lambda u, v: u * v, "neg": lambda u: -u}

    def symbolic(graph):
        return evaluate(from_graph(graph), lambda label, *v: operators[label](*v) if v else sympy.sympify(label))

    for pair in generate("simplify", 100, 0):
        assert sympy.expand(symbolic(pair.input) - symbolic(pair.target)) == 0


def test_rules_fit_often_and_not_always():
    pairs = generate("simplify", 1000, 0)
    assert 0.1 < mean(pair.input == pair.target for pair in pairs) < 0.3
    assert 0.4 < mean(len(pair.target.nodes) / len(pair.input.nodes) for pair in pairs) < 0.8
    assert {label for pair in pairs for label in pair.input.nodes} == {*"xyz0123456789+-*", "neg"}


def test_a_wrong_simplification_does_not_get_out(monkeypatch):
    def wrong(expression):
        return [node._replace(label="+" if node.label == "-" else node.label) for node in simplify(expression)]

    monkeypatch.setattr(module, "simplify", wrong)
    with pytest.raises(AssertionError, match="but the simplified one is"):
        generate("simplify", 50, 0)
