"""Figures of predicted graphs: worked out by hand, and against the exact edit distance of networkx."""

from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grapheme_nn.data import Graph
from grapheme_nn.drawing import draw, preview
from grapheme_nn.evaluate import Confusion, Evaluation, confusions, evaluate, evaluate_graphs, structural_loss
from grapheme_nn.graph_matching import match_nodes

# x * 1, x, and x * (x + 1) with one x or two
PRODUCT = Graph(("*", "x", "1"), ((1, 0, 0), (2, 0, 1)))
SWAPPED = Graph(("1", "*", "x"), ((2, 1, 0), (0, 1, 1)))
X = Graph(("x",), ())
EMPTY = Graph((), ())
SHARED = Graph(("*", "x", "+", "1"), ((1, 0, 0), (2, 0, 1), (1, 2, 0), (3, 2, 1)))
TWICE = Graph(("*", "x", "+", "1", "x"), ((1, 0, 0), (2, 0, 1), (4, 2, 0), (3, 2, 1)))


@st.composite
def graphs(draw, most=4):
    nodes = draw(st.lists(st.sampled_from("ab"), max_size=most))
    places = [(a, b) for a in range(len(nodes)) for b in range(a + 1, len(nodes))]
    ends = draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    return Graph(tuple(nodes), tuple((*pair, draw(st.sampled_from([0, "of"]))) for pair in ends))


def least_edits(one, other):
    return nx.graph_edit_distance(
        one.to_networkx(),
        other.to_networkx(),
        node_match=lambda a, b: a["label"] == b["label"],
        edge_match=lambda a, b: a["type"] == b["type"],
    )


def test_figures_of_three_graphs_worked_out_by_hand():
    found = evaluate([SWAPPED, X, PRODUCT], [PRODUCT, X, X])
    assert found.pairs == 3
    assert found.exact_match == pytest.approx(2 / 3)
    assert found.word_error_rate == pytest.approx(1 / 3)
    assert found.edit_distance == pytest.approx(4 / 3)  # two nodes and two edges too many
    assert found.symbol_error_rate == pytest.approx(4 / (5 + 1 + 1))
    assert found.similarity == pytest.approx((1 + 1 + 1 / 5) / 3)
    assert found.node_f1 == pytest.approx(2 * 5 / (7 + 5))
    assert found.edge_f1 == pytest.approx(2 * 2 / (4 + 2))
    assert found.structural_loss > 0


def test_graphs_have_the_figures_of_texts_in_their_order_and_three_more():
    found = evaluate([PRODUCT], [SWAPPED])
    assert found._fields == (*Evaluation._fields, "node_f1", "edge_f1", "edit_distance")
    assert found[:5] == (1, 1.0, 0.0, 0.0, 1.0)
    assert found.structural_loss == pytest.approx(0, abs=1e-6)
    assert found[6:] == (1.0, 1.0, 0.0)


def test_graphs_without_nodes_have_figures_too():
    assert evaluate([EMPTY], [EMPTY]) == (1, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0)
    found = evaluate([PRODUCT, EMPTY], [EMPTY, X])
    assert found.edit_distance == 3
    assert (found.node_f1, found.similarity) == (0, 0)


def test_an_edge_turned_round_is_two_edits_and_one_of_another_type_is_one():
    turned = PRODUCT._replace(edges=((0, 1, 0), (2, 0, 1)))
    assert match_nodes(turned, PRODUCT)[1:] == (3, 1, 2)
    retyped = PRODUCT._replace(edges=((1, 0, 7), (2, 0, 1)))
    assert match_nodes(retyped, PRODUCT)[1:] == (3, 1, 1)


def test_a_subtree_that_moved_keeps_its_inner_edges():
    assert match_nodes(SHARED, TWICE)[1:] == (4, 3, 3)  # one node more, one edge less, one more


@settings(max_examples=60)
@given(graphs(), graphs())
def test_edits_are_at_least_the_exact_distance_and_none_just_for_isomorphic_graphs(one, other):
    exact = least_edits(one, other)
    found = match_nodes(one, other)
    assert found.edits >= exact
    assert (found.edits == 0) == (exact == 0)
    assert found.edits <= max(len(one.nodes), len(other.nodes)) + len(one.edges) + len(other.edges)
    assert len({image for image in found.images if image is not None}) == min(len(one.nodes), len(other.nodes))


def test_on_most_small_graphs_edits_are_the_exact_distance():
    random, equal = Random(0), 0
    for _ in range(100):
        pair = []
        for _ in range(2):
            nodes = random.choices("abc", k=random.randint(2, 5))
            ends = [(a, b, 0) for b in range(len(nodes)) for a in range(b) if random.random() < 0.5]
            pair.append(Graph(tuple(nodes), tuple(ends)))
        equal += match_nodes(*pair).edits == least_edits(*pair)
    assert equal >= 80


def test_a_tree_with_one_wrong_leaf_among_hundreds_has_one_edit():
    edges = tuple((node, (node - 1) // 2, (node - 1) % 2) for node in range(1, 255))
    tree = Graph(tuple("ab"[node % 2] for node in range(255)), edges)
    wrong = tree._replace(nodes=(*tree.nodes[:200], "c", *tree.nodes[201:]))
    assert match_nodes(wrong, tree)[1:] == (254, 254, 1)


def test_graphs_too_large_for_assignments_are_matched_by_their_surroundings(monkeypatch):
    monkeypatch.setattr("grapheme_nn.graph_matching.MOST_PAIRS", 0)
    found = match_nodes(PRODUCT, TWICE)
    assert len(set(found.images)) == 3
    assert found.edits >= match_nodes(TWICE, TWICE).edits == 0
    chain = Graph(tuple(map(str, range(50))), tuple((i, i + 1, 0) for i in range(49)))
    assert match_nodes(chain._replace(nodes=("new", *chain.nodes[1:])), chain).edits == 1


def test_texts_and_graphs_do_not_mix():
    with pytest.raises(ValueError, match="texts cannot be evaluated against graphs"):
        evaluate(["x"], [X])
    with pytest.raises(ValueError, match="this is a figure of texts, but some are graphs"):
        structural_loss([X], [X])
    with pytest.raises(ValueError, match="1 predictions for 2 targets"):
        evaluate_graphs([X], [X, X])


def test_a_wrong_rewrite_is_the_smallest_term_that_is_missing():
    wrong = Graph(("*", "x", "2"), ((1, 0, 0), (2, 0, 1)))
    outer = Graph(("sin", *PRODUCT.nodes), ((1, 0, 0), (2, 1, 0), (3, 1, 1)))
    inner = Graph(("sin", *wrong.nodes), ((1, 0, 0), (2, 1, 0), (3, 1, 1)))
    assert confusions([wrong, inner, PRODUCT], [PRODUCT, outer, PRODUCT]) == [Confusion("1", "2", 2)]
    other = PRODUCT._replace(edges=((2, 0, 0), (1, 0, 1)))
    assert confusions([other], [PRODUCT]) == [Confusion("*(x, 1)", "*(1, x)", 1)]
    assert confusions([PRODUCT], [X]) == [Confusion("x", "*(x, 1)", 1)]
    assert confusions([X], [EMPTY]) == [Confusion(None, "x", 1)]
    assert confusions([SHARED], [TWICE]) == [Confusion("x", None, 1)]
    assert confusions([PRODUCT], [SWAPPED]) == []


def test_terms_that_differ_only_deep_down_are_shown_as_deep_as_that():
    def nested(left, right):
        return Graph(
            ("+", "f", "g", "h", "h", left, right), ((1, 0, 0), (2, 0, 1), (3, 1, 0), (4, 2, 0), (5, 3, 0), (6, 4, 0))
        )

    assert confusions([nested("y", "x")], [nested("x", "y")]) == [Confusion("f(h(x))", "f(h(y))", 1)]


def test_names_of_types_are_part_of_a_term():
    one, other = (Graph(("C", "O"), ((0, 1, kind),), directed=False) for kind in ("single", "double"))
    assert confusions([one], [other]) == [Confusion("C(double: O)", "C(single: O)", 1)]


def test_a_graph_is_drawn_as_a_tree_with_shared_nodes_once():
    assert draw(SHARED).splitlines() == ["*", "├─ x #1", "└─ +", "   ├─ #1", "   └─ 1"]
    relation = Graph(("eats", "cat", ""), ((1, 0, "who"), (2, 0, "what")))
    assert draw(relation).splitlines() == ["eats", "├─ what: ''", "└─ who: cat"]
    assert draw(EMPTY) == "(no nodes)"


def test_operands_are_drawn_in_the_order_of_their_types():
    many = Graph(("f", *map(str, range(12))), tuple((11 - k + 1, 0, k) for k in range(12)))
    assert draw(many).splitlines()[1:] == [f"├─ {k}" for k in range(11, 0, -1)] + ["└─ 0"]


def test_several_trees_are_drawn_one_below_the_other_and_long_ones_cut():
    assert draw(Graph(("a", "b"), ())).splitlines() == ["a", "b"]
    wide = Graph(("+", *("x" * 41)), tuple((node, 0, node) for node in range(1, 42)))
    lines = draw(wide).splitlines()
    assert len(lines) == 31
    assert lines[-1] == "... and 12 more nodes"
    deep = Graph(("x",) * 5000, tuple((node + 1, node, 0) for node in range(4999)))
    assert draw(deep).splitlines()[-1] == "... and 4,970 more nodes"


@given(graphs(6))
def test_every_node_is_drawn(graph):
    lines = draw(graph).splitlines()
    repeated = sum(
        line.split()[-1].startswith("#") and len(line.split(" ")[-1]) == len(line.lstrip("│├└─ of:")) for line in lines
    )
    assert len(lines) - repeated == max(len(graph.nodes), 1)


def test_a_preview_is_a_few_words():
    assert preview(PRODUCT) == "a graph of 3 nodes and 2 edges (* x 1)"
    assert preview(X) == "a graph of 1 node and 0 edges (x)"
    assert preview(Graph(("x",) * 20, ())).endswith("(x x x x x x x x ...)")
