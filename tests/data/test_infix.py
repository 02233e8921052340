"""The tasks of infix texts and their trees."""

import ast
import re
from collections import Counter
from random import Random

import pytest

from grapheme_nn.data import generate, infix
from grapheme_nn.data.expressions import from_graph, to_prefix
from grapheme_nn.data.graphs import Graph
from grapheme_nn.data.infix import draw_text, parse, unparse

SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def polish(tree):
    """Python's own tree in Polish notation."""
    if isinstance(tree, ast.BinOp):
        return f"{SIGNS[type(tree.op)]} {polish(tree.left)} {polish(tree.right)}"
    return tree.id if isinstance(tree, ast.Name) else str(tree.value)


def nesting(text):
    """Brackets that are open at once."""
    depth = [text[:end].count("(") - text[:end].count(")") for end in range(len(text) + 1)]
    return max(depth)


def test_nodes_stand_in_the_order_of_their_characters():
    assert parse("a*(b-2)") == Graph(("a", "*", "b", "-", "2"), ((0, 1, 0), (3, 1, 1), (2, 3, 0), (4, 3, 1)))
    assert parse("((x))") == Graph(("x",), ())


@pytest.mark.parametrize(
    ("text", "tree"),
    [("a-b-c", "- - a b c"), ("a-(b-c)", "- a - b c"), ("a+b*c", "+ a * b c"), ("a*b+c/2/x", "+ * a b / / c 2 x")],
)
def test_precedence_and_associativity_are_the_usual_ones(text, tree):
    assert to_prefix(parse(text)) == tree


def test_python_parses_the_same_trees():
    for pair in generate("parse", 300, 0, length=40):
        assert to_prefix(pair.target, most=100) == polish(ast.parse(pair.input, mode="eval").body)
        assert "".join(pair.target.nodes) == re.sub(r"[()]", "", pair.input)


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("((a))", "a"),
        ("(a+b)+c", "a+b+c"),
        ("a+(b+c)", "a+(b+c)"),
        ("(a*b)+c", "a*b+c"),
        ("(a+b)*(c)", "(a+b)*c"),
        ("a*(b/c)", "a*(b/c)"),
        ("(a/b)*c", "a/b*c"),
    ],
)
def test_only_brackets_that_change_the_tree_are_written(text, shortest):
    assert unparse(from_graph(parse(text))) == shortest


def test_no_bracket_of_an_unparsed_text_can_be_left_out():
    for tree, text, _ in generate("unparse", 300, 0):
        assert from_graph(parse(text)) == from_graph(tree)
        assert all(source < target for source, target, _ in tree.edges)
        for start in (found.start() for found in re.finditer(r"\(", text)):
            end = next(
                end
                for end in range(start, len(text))
                if nesting(text[start : end + 1])
                and text[start : end + 1].count("(") == text[start : end + 1].count(")")
            )
            without = text[:start] + text[start + 1 : end] + text[end + 1 :]
            assert from_graph(parse(without)) != from_graph(tree)


@pytest.mark.parametrize("task", ["parse", "unparse"])
@pytest.mark.parametrize("length", [20, 40])
def test_every_length_is_about_as_frequent(task, length):
    pairs = generate(task, 1000, 0, length=length)
    lengths = Counter(len(pair.input if task == "parse" else pair.target) for pair in pairs)
    assert set(lengths) == set(range(3, length, 2))
    assert max(lengths.values()) < 2 * 1000 / len(lengths)
    assert min(count for size, count in lengths.items() if size > 5) > 0.5 * 1000 / len(lengths)


def test_texts_have_what_is_promised():
    texts = [draw_text(Random(seed), 40) for seed in range(2000)]
    assert {nesting(text) for text in texts} == {0, 1, 2, 3}
    assert set("".join(texts)) == set("abcxyz0123456789+-*/()")
    shorter = sum(len(unparse(from_graph(parse(text)))) < len(text) for text in texts)
    assert 0.2 < shorter / len(texts) < 0.8


def test_texts_that_only_divide_by_zero_are_left_out():
    assert not infix.confirm_parse("a/(b-b)", parse("a/(b-b)"), Random(0))
    assert infix.confirm_parse("a/(b-c)", parse("a/(b-c)"), Random(0))


def test_a_wrong_tree_does_not_get_out(monkeypatch):
    monkeypatch.setattr(infix, "PRECEDENCE", dict.fromkeys("+-*/", 1))
    with pytest.raises(AssertionError, match="to Python, but"):
        generate("parse", 50, 0)


def test_a_wrong_text_does_not_get_out(monkeypatch):
    monkeypatch.setattr(infix, "unparse", lambda tree: "".join(parse(unparse(tree)).nodes))
    with pytest.raises(AssertionError, match="was written for another tree"):
        generate("unparse", 50, 0)
