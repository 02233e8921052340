"""Expressions as DAGs, and the task of their derivatives."""

from collections import Counter
from functools import partial
from random import Random
from statistics import mean

import pytest
import sympy

from grapheme_nn.data import derivative as module
from grapheme_nn.data import generate
from grapheme_nn.data.derivative import differentiate, real
from grapheme_nn.data.expressions import (
    MOST_NODES,
    Node,
    draw_expression,
    evaluate,
    from_graph,
    permute,
    to_graph,
    to_prefix,
)
from grapheme_nn.data.graphs import Graph

# sin(x * x) + exp(x * x), where x * x is one node
SHARED = [Node("x"), Node("x"), Node("*", (0, 1)), Node("sin", (2,)), Node("exp", (2,)), Node("+", (3, 4))]


def height(graph):
    """Edges on the longest path."""
    return evaluate(from_graph(graph), lambda label, *heights: 1 + max(heights, default=-1))


def symbolic(graph):
    """What a graph means to sympy."""
    operators = {"+": lambda u, v: u + v, "-": lambda u, v: u - v, "*": lambda u, v: u * v}
    operators |= {"sin": sympy.sin, "cos": sympy.cos, "exp": sympy.exp}
    return evaluate(from_graph(graph), lambda label, *v: operators[label](*v) if v else sympy.sympify(label))


def test_a_derivative_shares_what_its_rules_share():
    target = to_graph(differentiate(SHARED))
    assert target == Graph(
        ("x", "1", "x", "1", "*", "*", "*", "+", "cos", "*", "exp", "*", "+"),
        (
            *((0, 4, 0), (2, 4, 1)),  # x * x, once
            *((1, 5, 0), (2, 5, 1), (0, 6, 0), (3, 6, 1), (5, 7, 0), (6, 7, 1)),  # its derivative, once
            *((4, 8, 0), (8, 9, 0), (7, 9, 1)),  # cos(x * x) * ...
            *((4, 10, 0), (10, 11, 0), (7, 11, 1)),  # exp(x * x), the copy of the input's node
            *((9, 12, 0), (11, 12, 1)),
        ),
    )


@pytest.mark.parametrize(
    ("expression", "target"),
    [
        ([Node("x")], "1"),
        ([Node("7")], "0"),
        ([Node("x"), Node("3"), Node("+", (0, 1))], "+ 1 0"),
        ([Node("x"), Node("3"), Node("-", (1, 0))], "- 0 1"),
        ([Node("x"), Node("3"), Node("*", (0, 1))], "+ * 1 3 * x 0"),
        ([Node("x"), Node("sin", (0,))], "* cos x 1"),
        ([Node("x"), Node("cos", (0,))], "* - 0 sin x 1"),
        ([Node("x"), Node("exp", (0,))], "* exp x 1"),
        ([Node("x"), Node("sin", (0,)), Node("*", (1, 1))], "+ * * cos x 1 sin x * sin x * ..."),
    ],
)
def test_each_rule_is_the_stated_one(expression, target):
    assert to_prefix(to_graph(differentiate(expression))) == target


def test_a_derivative_has_no_node_that_nothing_needs():
    # of x + sin(x), neither the sum nor sin(x) nor the first x is needed
    expression = [Node("x"), Node("x"), Node("sin", (1,)), Node("+", (0, 2))]
    assert [label for label, _ in differentiate(expression)] == ["1", "x", "1", "cos", "*", "+"]


def test_sympy_finds_the_same_derivatives():
    x = sympy.Symbol("x")
    for pair in generate("derivative", 60, 1):
        difference = sympy.diff(symbolic(pair.input), x) - symbolic(pair.target)
        assert abs(difference.subs(x, sympy.Rational(3, 7)).evalf(30)) < 1e-15


def test_a_wrong_derivative_does_not_get_out(monkeypatch):
    def wrong(expression):
        return [node._replace(label="cos" if node.label == "sin" else node.label) for node in differentiate(expression)]

    monkeypatch.setattr(module, "differentiate", wrong)
    with pytest.raises(AssertionError, match=r"at x = .* the derivative is"):
        generate("derivative", 50, 0)


def test_what_is_too_large_to_evaluate_is_left_out():
    tower = [Node("x"), Node("9"), Node("+", (0, 1)), Node("exp", (2,)), Node("exp", (3,)), Node("sin", (4,))]
    assert not module.confirm_derivative(tower, differentiate(tower), Random(0))


@pytest.mark.parametrize(("depth", "fewest", "most"), [(3, 8, 12), (5, 18, 32), (8, 60, 150)])
def test_sizes_grow_with_depth(depth, fewest, most):
    pairs = generate("derivative", 300, 0, depth=depth)
    assert {height(pair.input) for pair in pairs} == {depth}
    assert fewest < mean(len(pair.input.nodes) for pair in pairs) < most
    assert max(len(pair.input.nodes) for pair in pairs) <= MOST_NODES
    assert all(len(pair.target.nodes) <= 5 * len(pair.input.nodes) for pair in pairs)
    assert len({len(pair.input.nodes) for pair in pairs}) > 2 * depth


def test_expressions_never_exceed_their_most_nodes(monkeypatch):
    monkeypatch.setattr("grapheme_nn.data.expressions.MOST_NODES", 20)
    assert max(len(draw_expression(Random(seed), module.GRAMMAR, 5)) for seed in range(100)) <= 20


def test_inputs_are_dags_in_which_only_operators_are_shared():
    pairs = generate("derivative", 1000, 0)
    shared, twice = 0, 0
    for graph, target, _ in pairs:
        uses = Counter(source for source, _, _ in graph.edges)
        assert all(uses[node] == 1 for node, label in enumerate(graph.nodes) if label in "x123456789")
        assert all(source < end for side in (graph, target) for source, end, _ in side.edges)
        assert sum(node not in uses for node in range(len(graph.nodes))) == 1
        assert "x" in graph.nodes
        shared += max(uses.values()) > 1
        twice += max(Counter(edge[:2] for edge in graph.edges).values()) > 1
    assert 0.2 < shared / len(pairs) < 0.6
    assert twice > 10
    assert {label for pair in pairs for label in pair.input.nodes} == {*"x123456789+-*", "sin", "cos", "exp"}


def test_a_graph_and_its_expression_are_the_same_thing():
    for seed in range(50):
        expression = draw_expression(Random(seed), module.GRAMMAR, 4)
        graph = to_graph(expression)
        assert from_graph(graph) == expression
        assert from_graph(permute(graph, Random(seed))) == expression


def test_a_graph_with_two_roots_is_no_expression():
    with pytest.raises(ValueError, match="one root, but this graph has 2"):
        from_graph(Graph(("x", "y"), ()))


def test_an_expression_is_evaluated_at_a_point():
    assert evaluate([Node("x"), Node("3"), Node("-", (1, 0)), Node("*", (2, 2))], partial(real, 5.0)) == 4
