"""Text and graphs: the round trip is exact, a batch is what PyG would have made, order agrees with networkx."""

import sys
import unicodedata

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import to_dense_batch, to_networkx

from grapheme_nn import (
    UNITS,
    batch_to_texts,
    graph_to_text,
    is_acyclic,
    levels,
    text_to_graph,
    texts_to_batch,
    topological_order,
)
from grapheme_nn.dag import breadth_first, near_pairs

every_text = st.text(st.characters(exclude_categories=()))  # all planes, lone surrogates included
hard_texts = [
    "",
    " ",
    "  a  b ",
    "e\u0301\u0327x",
    "\r\n\r",
    "\u0301",
    "\ud800\udc00",
    "\udfff",
    "\x00",
    "각각",
    "👩‍👩‍👧‍👦🇧🇬",
]
edge_lists = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, max(n - 1, 0)), st.integers(0, max(n - 1, 0))), max_size=14 if n else 0),
    )
)


def edges_of(pairs: list[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T


@pytest.mark.parametrize("unit", ["codepoint", "cluster", "symbol"])
@given(text=every_text)
def test_round_trip_is_exact_for_every_str(unit, text):
    assert graph_to_text(text_to_graph(text, unit)) == text


@pytest.mark.parametrize("unit", ["codepoint", "cluster", "symbol"])
@given(texts=st.lists(every_text | st.sampled_from(hard_texts)))
def test_round_trip_of_a_batch_is_exact(unit, texts):
    assert batch_to_texts(texts_to_batch(texts, unit)) == texts


@given(texts=st.lists(every_text | st.sampled_from(hard_texts)))
def test_decomposed_round_trip_is_exact_up_to_canonical_equivalence(texts):
    back = batch_to_texts(texts_to_batch(texts, "decomposed"))
    assert [unicodedata.normalize("NFD", text) for text in back] == [unicodedata.normalize("NFD", t) for t in texts]


@given(symbols=st.lists(st.text(st.characters(exclude_categories=(), exclude_characters=" "), min_size=1)))
def test_each_symbol_is_a_node(symbols):
    graph = text_to_graph(" ".join(symbols), "symbol")
    assert graph.num_nodes == len(symbols)
    assert graph_to_text(graph).split(" ") == (symbols or [""])


@pytest.mark.parametrize("unit", UNITS)
def test_one_megabyte_of_text_round_trips(unit):
    text = ("Grüße, 한국어 😀 e\u0301 \n" * 60_000)[:1_000_000]
    text = unicodedata.normalize("NFC", text)
    assert graph_to_text(text_to_graph(text, unit)) == text


def test_a_unit_is_what_its_name_says():
    nodes = {unit: text_to_graph("각 e\u0301", unit).num_nodes for unit in UNITS}
    assert nodes == {"codepoint": 4, "cluster": 3, "decomposed": 6, "symbol": 2}


def test_equal_units_have_equal_numbers_and_different_units_different_ones():
    units = ["t͡ʃ", "t͡s", "tʃ͡", "t", "ʃ", "", "tt", "ttt"]
    x = text_to_graph(" ".join(units + units), "symbol").x
    assert torch.equal(x[: len(units)], x[len(units) :])
    assert x.unique().numel() == len(units)
    assert x[3] == ord("t")


def test_a_graph_is_a_chain():
    assert text_to_graph("abc").edge_index.tolist() == [[0, 1], [1, 2]]
    assert texts_to_batch(["abc", "", "d", "ef"]).edge_index.tolist() == [[0, 1, 4], [1, 2, 5]]


@pytest.mark.parametrize("unit", UNITS)
@given(texts=st.lists(every_text | st.sampled_from(hard_texts), min_size=1, max_size=6))
@settings(max_examples=40)
def test_a_batch_is_what_pyg_makes_of_the_graphs(unit, texts):
    graphs = [text_to_graph(text, unit) for text in texts]
    ours, theirs = texts_to_batch(texts, unit), Batch.from_data_list(graphs)
    assert type(ours) is type(theirs)
    assert ours.num_graphs == theirs.num_graphs
    assert set(ours.keys()) == set(theirs.keys())
    for key in theirs.keys():  # noqa: SIM118 (a Data is not a dict)
        same = torch.equal(ours[key], theirs[key]) if torch.is_tensor(theirs[key]) else ours[key] == theirs[key]
        assert same, key
    for ours_alone, graph in zip(ours.to_data_list(), graphs, strict=True):
        assert torch.equal(ours_alone.x, graph.x)
        assert torch.equal(ours_alone.edge_index, graph.edge_index)
        assert graph_to_text(ours_alone) == graph_to_text(graph)


def test_a_batch_works_with_pyg_functions_and_loaders():
    batch = texts_to_batch(["ab", "", "cde"])
    dense, mask = to_dense_batch(batch.x, batch.batch, batch_size=batch.num_graphs)
    assert dense.shape == (3, 3)
    assert mask.sum(dim=1).tolist() == [2, 0, 3]
    loader = DataLoader([text_to_graph(text, "symbol") for text in ("a b", "", "t͡ʃ")], batch_size=2)
    assert [text for part in loader for text in batch_to_texts(part)] == ["a b", "", "t͡ʃ"]
    assert nx.is_directed_acyclic_graph(to_networkx(text_to_graph("abc")))


def calls_in(function):
    """How many Python functions a call calls, all in all: what it costs, on any machine."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_batch_costs_no_call_per_word():
    few, many = ([f"word{i}" for i in range(count)] for count in (10, 1000))
    texts_to_batch(few)  # what is imported on first use does not count
    assert calls_in(lambda: texts_to_batch(many)) <= calls_in(lambda: texts_to_batch(few)) + 10
    assert calls_in(lambda: Batch.from_data_list([text_to_graph(word) for word in few])) > 100


@given(edge_lists)
def test_order_and_levels_agree_with_networkx(graph):
    n, pairs = graph
    edge_index = edges_of(pairs)
    reference = nx.MultiDiGraph(pairs)
    reference.add_nodes_from(range(n))
    acyclic = nx.is_directed_acyclic_graph(reference)
    assert is_acyclic(edge_index, n) == acyclic
    if not acyclic:
        with pytest.raises(ValueError, match="cycle"):
            levels(edge_index, n)
        with pytest.raises(ValueError, match="cycle"):
            topological_order(edge_index, n)
        return
    expected = [0] * n
    for level, nodes in enumerate(nx.topological_generations(reference)):
        for node in nodes:
            expected[node] = level
    assert levels(edge_index, n).tolist() == expected
    order = topological_order(edge_index, n)
    assert sorted(order.tolist()) == list(range(n))
    place = order.argsort()
    assert (place[edge_index[0]] < place[edge_index[1]]).all()


@given(edge_lists, st.randoms())
def test_order_does_not_depend_on_the_order_of_the_edges(graph, random):
    n, pairs = graph
    if is_acyclic(edges_of(pairs), n):
        shuffled = random.sample(pairs, len(pairs))
        assert torch.equal(topological_order(edges_of(pairs), n), topological_order(edges_of(shuffled), n))


@given(edge_lists, st.randoms())
def test_breadth_first_each_component_is_a_run_of_nodes_that_begin_at_an_end(graph, random):
    n, pairs = graph
    order = breadth_first(edges_of(pairs), n)
    assert torch.equal(order, breadth_first(edges_of(random.sample(pairs, len(pairs))).flip(0), n))
    reference = nx.Graph(pairs)
    reference.add_nodes_from(range(n))
    runs = sorted(nx.connected_components(reference), key=min)
    for run in runs:
        own, order = order[: len(run)].tolist(), order[len(run) :]
        distance = nx.single_source_shortest_path_length(reference, own[-1])
        assert [distance[node] for node in own] == sorted(distance.values(), reverse=True)
        assert distance[min(run)] == nx.eccentricity(reference.subgraph(run), min(run))
    assert not order.numel()


@given(edge_lists, st.integers(0, 3))
def test_near_pairs_are_as_far_apart_as_networkx_says(graph, hops):
    n, pairs = graph
    reference = nx.Graph(pairs)
    reference.add_nodes_from(range(n))
    near = [(i, j) for i, far in nx.all_pairs_shortest_path_length(reference, hops) for j in far if i != j]
    assert list(map(tuple, near_pairs(edges_of(pairs), n, hops).T.tolist())) == sorted(near)


def test_levels_of_text_count_from_each_start():
    assert levels(texts_to_batch(["abc", "", "d", "ef"]).edge_index, 6).tolist() == [0, 1, 2, 0, 0, 1]


def test_levels_take_linear_time():
    def lines(n):
        """Lines of Python that run for a chain numbered backwards, which must be walked."""
        node = torch.arange(n).flip(0)
        edge_index = torch.stack([node[:-1], node[1:]])
        count = 0

        def trace(frame, event, argument):
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            assert int(levels(edge_index, n).max()) == n - 1
        finally:
            sys.settrace(before)
        return count

    assert lines(4000) < 4.5 * lines(1000)  # four times the nodes; a square would be sixteen


@pytest.mark.parametrize(
    ("error", "sentence", "call"),
    [
        (ValueError, "unknown unit 'word': choose one of codepoint", lambda: text_to_graph("a", "word")),
        (TypeError, "must be a str, but got bytes: decode", lambda: text_to_graph(b"a")),
        (TypeError, "must be a str, but got NoneType", lambda: texts_to_batch(["a", None])),
        (TypeError, "a list of texts, but got one str", lambda: texts_to_batch("abc")),
        (ValueError, "refers to node 7, but the graph has 5 nodes", lambda: levels(torch.tensor([[0], [7]]), 5)),
        (ValueError, "refers to node -1", lambda: is_acyclic(torch.tensor([[-1], [0]]), 5)),
        (ValueError, r"shape \[2, e\], but is torch.int64 \[3\]", lambda: is_acyclic(torch.tensor([0, 1, 2]), 5)),
        (ValueError, "does not spell a text", lambda: graph_to_text(Data(x=torch.tensor([-5]), unit="codepoint"))),
        (ValueError, "it has no x", lambda: graph_to_text(Data(num_nodes=0))),
    ],
)
def test_bad_input_is_answered_by_a_sentence(error, sentence, call):
    with pytest.raises(error, match=sentence):
        call()


def test_a_graph_that_lost_nodes_says_so():
    graph = text_to_graph("ab c", "symbol")
    graph.x, graph.spelling_size = graph.x[:1], graph.spelling_size[:1]
    with pytest.raises(ValueError, match="1 nodes and 3 code points"):
        graph_to_text(graph)
