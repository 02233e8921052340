"""Isomorphism: networkx is the referee on small graphs; hard ones are known by their names."""

from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import Graph
from grapheme_nn.isomorphism import is_isomorphic, isomorphism


def renumbered(graph, random):
    order = list(range(len(graph.nodes)))
    random.shuffle(order)
    place = {node: new for new, node in enumerate(order)}
    edges = [(place[source], place[target], kind) for source, target, kind in graph.edges]
    if not graph.directed:
        edges = [(min(a, b), max(a, b), kind) for a, b, kind in edges]
    random.shuffle(edges)
    return Graph(tuple(graph.nodes[node] for node in order), tuple(edges), graph.directed)


def undirected(drawn, label="C"):
    nx.set_node_attributes(drawn, label, "label")
    return Graph.from_networkx(nx.convert_node_labels_to_integers(drawn))


@st.composite
def graphs(draw, most=5):
    nodes = draw(st.lists(st.sampled_from("ab"), max_size=most))
    size = len(nodes)
    places = [(a, b, kind) for a in range(size) for b in range(a + 1, size) for kind in (0, "of")]
    edges = draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    return Graph(tuple(nodes), tuple(edges), draw(st.booleans()))


def networkx_says(one, other):
    directed = one.directed or other.directed
    kind = nx.MultiDiGraph if directed else nx.MultiGraph
    drawn = [kind(graph._replace(directed=directed).to_networkx()) for graph in (one, other)]
    return nx.is_isomorphic(
        *drawn,
        node_match=lambda a, b: a["label"] == b["label"],
        edge_match=lambda a, b: {e["type"] for e in a.values()} == {e["type"] for e in b.values()},
    )


def is_bijection_that_keeps_all(one, other, images):
    assert sorted(images) == list(range(len(other.nodes)))
    assert all(one.nodes[node] == other.nodes[image] for node, image in enumerate(images))
    moved = [(images[a], images[b], kind) for a, b, kind in one.edges]
    if not one.directed and not other.directed:
        moved = [(min(a, b), max(a, b), kind) for a, b, kind in moved]
    return set(moved) == set(other.edges)


@given(graphs(), graphs())
def test_any_two_small_graphs_are_judged_as_networkx_judges_them(one, other):
    images = isomorphism(one, other)
    assert (images is not None) == networkx_says(one, other)
    if images is not None:
        assert is_bijection_that_keeps_all(one, other, images)


@given(graphs(7), st.randoms(use_true_random=False))
def test_other_numbers_make_no_other_graph(graph, random):
    other = renumbered(graph, random)
    images = isomorphism(graph, other)
    assert images is not None
    assert is_bijection_that_keeps_all(graph, other, images)


@given(graphs(7), st.data())
def test_one_edge_turned_or_moved_is_judged_as_networkx_judges_it(graph, data):
    if not graph.edges:
        return
    place = data.draw(st.integers(0, len(graph.edges) - 1))
    source, _, kind = graph.edges[place]
    target = data.draw(st.integers(source + 1, len(graph.nodes) - 1))
    edges = tuple(dict.fromkeys((*graph.edges[:place], (source, target, kind), *graph.edges[place + 1 :])))
    other = renumbered(graph._replace(edges=edges), Random(0))
    assert is_isomorphic(graph, other) == networkx_says(graph, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))),
        (nx.circular_ladder_graph(5), nx.petersen_graph()),
        (nx.line_graph(nx.complete_bipartite_graph(4, 4)), None),  # the rook's graph, and below Shrikhande's
        (
            nx.disjoint_union_all([nx.cycle_graph(6)] * 10),
            nx.disjoint_union_all([*[nx.cycle_graph(6)] * 9, nx.cycle_graph(3), nx.cycle_graph(3)]),
        ),
        (nx.random_regular_graph(3, 60, seed=1), nx.random_regular_graph(3, 60, seed=2)),
    ],
)
def test_regular_graphs_that_colours_cannot_tell_apart_are_told_apart(one, other):
    if other is None:
        other = nx.Graph(
            ((a, b), ((a + da) % 4, (b + db) % 4))
            for a in range(4)
            for b in range(4)
            for da, db in ((0, 1), (1, 0), (1, 1))
        )
    one, other = undirected(one), undirected(other)
    assert not is_isomorphic(one, other)
    assert is_isomorphic(one, renumbered(one, Random(0)))
    assert is_isomorphic(other, renumbered(other, Random(0)))


def test_directions_count_unless_both_graphs_have_none():
    fork, join = Graph(("a",) * 3, ((0, 1, 0), (0, 2, 0))), Graph(("a",) * 3, ((0, 2, 0), (1, 2, 0)))
    assert not is_isomorphic(fork, join)
    assert is_isomorphic(fork._replace(directed=False), join._replace(directed=False))
    assert not is_isomorphic(fork._replace(directed=False), join)


def star(size):
    return Graph(("a",) * size, tuple((leaf, 0, 0) for leaf in range(1, size)))


def complete_tree(size):
    return Graph(("a",) * size, tuple((node, (node - 1) // 2, 0) for node in range(1, size)))


def equal_subtrees(count):
    """A sum of products x * x, each x shared or not."""
    nodes, edges = ["+"], []
    for _ in range(count):
        at = len(nodes)
        nodes += ["*", "x", "x"]
        edges += [(at, 0, 0), (at + 1, at, 0), (at + 2, at, 0)]
    return Graph(tuple(nodes), tuple(edges))


def layers(width, depth):
    """All nodes of a layer lead to all of the next."""
    edges = [
        (width * d + a, width * (d + 1) + b, 0) for d in range(depth - 1) for a in range(width) for b in range(width)
    ]
    return Graph(("a",) * (width * depth), tuple(edges))


def diamonds(count):
    edges = [(3 * i + a, 3 * i + b, 0) for i in range(count) for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))]
    return Graph(("a",) * (3 * count + 1), tuple(edges))


def chain(size):
    return Graph(("a",) * size, tuple((i, i + 1, 0) for i in range(size - 1)))


@pytest.mark.parametrize(
    "graph",
    [
        star(500),
        complete_tree(511),
        equal_subtrees(150),
        layers(8, 10),
        diamonds(150),
        chain(2000),
        chain(2000)._replace(directed=False),
        undirected(nx.grid_2d_graph(12, 12)),
    ],
    ids=["star", "complete tree", "equal subtrees", "layers", "diamonds", "chain", "undirected chain", "grid"],
)
def test_hundreds_of_nodes_that_look_alike_are_matched_with_little_work(graph, calls):
    other = renumbered(graph, Random(0))
    images = []
    work = calls(lambda: images.extend(isomorphism(graph, other) or ()))
    assert is_bijection_that_keeps_all(graph, other, images)
    size = len(graph.nodes) + len(graph.edges)
    assert work < 300 * size
