"""Graphs in files: what is read, what is refused and how, and what other programs make of them."""

import json
import subprocess
import sys
import time
import tracemalloc
from io import BytesIO

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import (
    DataError,
    Graph,
    Pair,
    hold_out,
    overlap,
    read_inputs,
    read_pairs,
    stream_inputs,
    write_pairs,
)
from grapheme_nn.data.graphs import find_cycle
from grapheme_nn.data.objects import other_keys

# x * sin x, with the two x apart
PRODUCT = {"nodes": ["*", "x", "sin", "x"], "edges": [[1, 0, 0], [2, 0, 1], [3, 2, 0]]}
X = {"nodes": ["x"], "edges": []}

labels = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
types = st.integers(0, 3) | labels


@st.composite
def graphs(draw, least=0, most=6):
    nodes = draw(st.lists(labels, min_size=least, max_size=most))
    directed = draw(st.booleans())
    rank = draw(st.permutations(range(len(nodes)))) if directed else range(len(nodes))
    places = [(a, b) for a in range(len(nodes)) for b in range(len(nodes)) if rank[a] < rank[b]]
    edges = draw(st.lists(st.tuples(st.sampled_from(places), types), max_size=8, unique=True)) if places else []
    return Graph(tuple(nodes), tuple((*ends, kind) for ends, kind in edges), directed)


def of(nodes, *edges, **more):
    return {"nodes": nodes, "edges": list(edges), **more}


def test_a_graph_is_labels_and_typed_edges():
    found = Graph.from_dict({"nodes": ["*", "x", "y"], "edges": [[1, 0], [2, 0, 1]]})
    assert found == Graph(("*", "x", "y"), ((1, 0, 0), (2, 0, 1)))
    assert found.as_dict() == {"nodes": ["*", "x", "y"], "edges": [[1, 0, 0], [2, 0, 1]]}
    assert hash(found) == hash(Graph.from_dict(found.as_dict()))


def test_edges_may_be_missing_and_types_are_written_where_any_is_not_0():
    assert Graph.from_dict({"nodes": ["x"]}) == Graph(("x",), ())
    assert Graph.from_dict(of(["a", "b"], [0, 1, 0])).as_dict() == of(["a", "b"], [0, 1])
    assert Graph.from_dict(of(["a", "b"], [0, 1, "0"])).as_dict() == of(["a", "b"], [0, 1, "0"])


def test_two_edges_may_have_the_same_ends_with_different_types():
    square = of(["*", "x"], [1, 0, 0], [1, 0, 1])
    assert Graph.from_dict(square).as_dict() == square


def test_undirected_edges_lead_from_the_lower_number_and_may_form_a_cycle():
    ring = Graph.from_dict(of(["C"] * 3, [1, 0], [1, 2], [2, 0], directed=False))
    assert ring == Graph(("C",) * 3, ((0, 1, 0), (1, 2, 0), (0, 2, 0)), directed=False)
    assert ring.as_dict()["directed"] is False


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([1], "a graph must be an object with 'nodes' and 'edges', but is a list"),
        ({"node": ["x"]}, "unknown key 'node' in a graph: did you mean 'nodes'?"),
        ({"nodes": [], "id": 3}, "unknown key 'id' in a graph: a graph has nodes, edges, directed"),
        ({"edges": []}, "the graph has no 'nodes': give a list of labels"),
        ({"nodes": "ab"}, "'nodes' must be a list of labels, but is a string"),
        (of(["x", 1]), 'the label of node 1 must be a string, but is a number: write "1"'),
        (of(["x", None]), "the label of node 1 must be a string, but is null"),
        (of(["x", True]), "the label of node 1 must be a string, but is true or false"),
        ({"nodes": [], "edges": {}}, "'edges' must be a list of edges, but is an object"),
        (of(["a", "b"], [0, 1], 3), "edge 1 must be [source, target] or [source, target, type], but is a number"),
        (of(["a", "b"], [0]), "edge 0 must be [source, target] or [source, target, type], but has 1 values"),
        (of(["a", "b"], [0, 1, 2, 3]), "edge 0 must be [source, target] or [source, target, type], but has 4 values"),
        (of(["a", "b"], [0, "1"]), "edge 0 must lead between numbers of nodes, but one of them is a string"),
        (of(["a", "b"], [0, 1.0]), "edge 0 must lead between numbers of nodes, but one of them is a number"),
        (of(["a", "b"], [False, 1]), "edge 0 must lead between numbers of nodes, but one of them is true or false"),
        (of(["a"] * 4, [0, 1], [1, 2], [2, 3], [3, 9]), "edge 3 refers to node 9, but there are 4 nodes"),
        (of(["a"] * 4, [0, 4]), "edge 0 refers to node 4, but there are 4 nodes (the first is 0)"),
        (of(["a"], [0, -1]), "edge 0 refers to node -1, but there is 1 node (the first is 0)"),
        (of(["a", "b"], [0, 1, -1]), "the type of edge 0 must be a string or an integer from 0, but is -1"),
        (of(["a", "b"], [0, 1, 1.0]), "the type of edge 0 must be a string or an integer from 0, but is 1.0"),
        (
            of(["a", "b"], [0, 1, True]),
            "the type of edge 0 must be a string or an integer from 0, but is true or false",
        ),
        (of(["a", "b"], [0, 1, []]), "the type of edge 0 must be a string or an integer from 0, but is a list"),
        (of(["a", "b"], [0, 1], [1, 1]), "edge 1 leads from node 1 to itself: remove it"),
        (of(["a", "b"], [0, 1], [0, 1, 0]), "edge 1 is edge 0 once more, 0 to 1 with type 0: remove it"),
        (of(["a", "b"], [0, 1], [1, 0], directed=False), "edge 1 is edge 0 once more, 1 to 0 with type 0: remove it"),
        (of(["a"], directed=1), "'directed' must be true or false, but is a number"),
        (
            of(["a"] * 6, [0, 1], [2, 5], [5, 3], [3, 2], [3, 4]),
            "the edges form a cycle: 2 -> 5 -> 3 -> 2: remove one of them, or turn it round",
        ),
    ],
)
def test_what_is_no_graph_is_met_by_a_sentence_that_names_the_place(wrong, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Graph.from_dict(wrong)
    assert str(caught.value) == sentence


def test_a_long_cycle_is_shown_in_part():
    size = 1000
    with pytest.raises(ValueError, match=r"0 -> 1 -> .* more \.\.\. -> 999 -> 0") as caught:
        Graph.from_dict(of(["a"] * size, *([i, (i + 1) % size] for i in range(size))))
    assert len(str(caught.value)) < 200


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_a_cycle_is_found_just_where_networkx_finds_one(drawn):
    size, pairs = drawn
    edges = [(a, b, 0) for a, b in pairs]
    cycle = find_cycle(edges, size)
    assert (cycle is None) == nx.is_directed_acyclic_graph(nx.DiGraph(pairs))
    if cycle:
        assert len(set(cycle)) == len(cycle)
        assert set(zip(cycle, [*cycle[1:], cycle[0]], strict=True)) <= set(pairs)


@given(graphs())
def test_json_says_the_same_graph_when_read_back(graph):
    assert Graph.from_dict(json.loads(json.dumps(graph.as_dict()))) == graph


@given(graphs())
def test_networkx_gives_the_same_graph_back(graph):
    back = Graph.from_networkx(graph.to_networkx())
    assert (back.nodes, set(back.edges), back.directed) == (graph.nodes, set(graph.edges), graph.directed)


def test_attributes_of_networkx_may_have_other_names():
    drawn = nx.Graph()
    drawn.add_node("a", element="C")
    drawn.add_node("b", element="O")
    drawn.add_edge("b", "a", bond="double")
    found = Graph.from_networkx(drawn, label="element", type="bond")
    assert found == Graph(("C", "O"), ((0, 1, "double"),), directed=False)
    with pytest.raises(ValueError, match="node 'a' has no attribute 'label'"):
        Graph.from_networkx(drawn)


def test_networkx_with_a_cycle_is_refused():
    drawn = nx.cycle_graph(3, create_using=nx.DiGraph)
    nx.set_node_attributes(drawn, "C", "label")
    with pytest.raises(ValueError, match="the edges form a cycle: 0 -> 1 -> 2 -> 0"):
        Graph.from_networkx(drawn)


def test_dot_quotes_what_needs_it():
    graph = Graph(('say "a"', "b\\\n"), ((0, 1, "of"),))
    assert graph.to_dot() == (
        'digraph {\n  0 [label="say \\"a\\""];\n  1 [label="b\\\\\\n"];\n  0 -> 1 [label="of"];\n}\n'
    )
    assert "0 -- 1;" in Graph(("C", "C"), ((0, 1, 0),), directed=False).to_dot()


def test_graphml_is_read_by_networkx_as_the_same_graph():
    for graph in (Graph.from_dict(PRODUCT), Graph(("C", "<&"), ((0, 1, "a"), (0, 1, 2)), directed=False)):
        back = nx.parse_graphml(graph.to_graphml(), node_type=int)
        found = Graph.from_networkx(back)
        assert (found.nodes, set(found.edges), found.directed) == (graph.nodes, set(graph.edges), graph.directed)
    with pytest.raises(ValueError, match="which XML cannot hold"):
        Graph(("a\x01",), ()).to_graphml()


def test_reading_graphs_takes_no_torch_along():
    code = (
        "import io, sys; from grapheme_nn.data import read_pairs; "
        'read_pairs(io.BytesIO(b\'{"input": {"nodes": ["x"]}, "target": "x"}\')); '
        "assert not {'torch', 'networkx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Files of pairs


def lines_of(*rows):
    return BytesIO("".join(f"{json.dumps(row)}\n" for row in rows).encode())


def complaint(*rows, read=read_pairs):
    with pytest.raises(DataError) as caught:
        read(lines_of(*rows))
    return str(caught.value)


@pytest.mark.parametrize("given", ["abc", PRODUCT])
@pytest.mark.parametrize("wanted", ["", "ab", X, {"nodes": [], "edges": []}])
def test_input_and_target_are_each_a_text_or_a_graph(given, wanted):
    pairs = read_pairs(lines_of({"input": given, "target": wanted, "features": "N", "id": 3}))
    sides = [side if isinstance(side, str) else Graph.from_dict(side) for side in (given, wanted)]
    assert pairs == [Pair(*sides, ("N",))]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"input": "x", "target": X}, "'input' is a string, but in most lines it is a graph"),
        ({"input": X, "target": "x"}, "'target' is a string, but in most lines it is a graph"),
        ({"input": of([]), "target": X}, "the input is empty"),
        ({"input": of(["x"], [0, 9]), "target": X}, "edge 0 refers to node 9, but there is 1 node (in 'input')"),
        (
            {"input": X, "target": of([1])},
            "the label of node 0 must be a string, but is a number: write \"1\" (in 'target')",
        ),
        ({"input": X, "target": of(["a\ud800"])}, "an escape such as \\ud800 is half of a surrogate pair"),
        ({"input": X, "target": of(["a", "b"], [0, 1, "\ud800"])}, "an escape such as \\ud800 is half of a surrogate"),
        ({"input": 3, "target": X}, "'input' must be a string or a graph, but is a number"),
        (X, "there is no key 'input'; the keys are 'nodes', 'edges'"),
    ],
)
def test_a_bad_graph_is_named_with_its_line(row, sentence):
    good = {"input": X, "target": X}
    assert complaint(good, good, row).startswith(f"input:3: {sentence}")


def test_a_graph_among_texts_is_the_odd_line_even_when_it_comes_first():
    good = {"input": "x", "target": "x"}
    message = "'input' is a graph, but in most lines it is a string"
    assert complaint({"input": X, "target": "x"}, good, good).startswith(f"input:1: {message}")


LONG = "x" * 10**6


@pytest.mark.parametrize(
    "wrong",
    [
        {LONG: 3, "nodes": []},
        of([LONG], [0, 10**4000]),
        of([-(10**4000)]),
        of(["a", "b"], [0, 1, LONG], [0, 1, LONG]),
        of(["a", "b"], [0, 1, -(10**4000)]),
    ],
)
def test_a_message_about_a_graph_is_short_however_long_its_values(wrong):
    with pytest.raises(ValueError, match=r"\.\.\. \([\d,]+ characters\)") as caught:
        Graph.from_dict(wrong)
    assert len(str(caught.value)) < 300


def test_a_curriculum_holds_no_graphs():
    assert "'input_polish' must be a string, but is an object" in complaint({"input_polish": X, "expected_result": 1})


def test_inputs_may_be_graphs_by_themselves_and_other_keys_are_kept():
    rows = [X, {"input": X, "id": 7, "target": "x"}, {"input": X}]
    (found,) = stream_inputs(lines_of(*rows), "pipe")
    graph = Graph.from_dict(X)
    assert [line.pair for line in found] == [Pair(graph, ""), Pair(graph, "x"), Pair(graph, "")]
    assert [line.row for line in found] == [None, *rows[1:]]
    assert other_keys(rows[1]) == {"id": 7}


def test_a_graph_by_itself_has_no_other_keys():
    assert "unknown key 'id' in a graph" in complaint({**X, "id": 3}, read=read_inputs)
    assert "unknown key 'node' in a graph: did you mean 'nodes'?" in complaint(
        {"node": ["x"], "edges": []}, read=read_inputs
    )


@given(st.lists(st.tuples(graphs(least=1), graphs()), min_size=1, max_size=4))
def test_jsonl_reads_back_as_the_same_graphs(tmp_path_factory, sides):
    path = tmp_path_factory.getbasetemp() / "graphs.jsonl"
    pairs = [Pair(*both) for both in sides]
    write_pairs(pairs, path)
    assert read_pairs(path) == pairs


@pytest.mark.parametrize(
    ("name", "pair", "reason"),
    [
        ("a.tsv", Pair("x", Graph(("x",), ())), "its target is a graph, which a TSV cannot hold: write .jsonl"),
        ("a.jsonl", Pair(Graph((), ()), "x"), "its input is empty"),
        ("a.jsonl", Pair("x", Graph(("x",), ((0, 1, 0),))), "its target would not be read: edge 0 refers to node 1"),
        ("a.jsonl", Pair("x", Graph(("\ud800",), ())), "it holds half a surrogate pair"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path, name, pair, reason):
    with pytest.raises(DataError, match=f"pair 1 cannot be written to .*: {reason}"):
        write_pairs([pair], tmp_path / name)


def test_a_stream_of_graphs_takes_the_memory_of_a_block():
    line = json.dumps({"input": of([str(i) for i in range(50)], *([i, i + 1] for i in range(49)))}).encode() + b"\n"
    stream = BytesIO(line * 4000)
    tracemalloc.start()
    assert sum(len(part) for part in stream_inputs(stream, "pipe")) == 4000
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_a_graph_of_a_million_nodes_is_read_in_seconds():
    size = 10**6
    graph = of(["x"] * size, *([(7919 * i) % size, (7919 * (i + 1)) % size] for i in range(size - 1)))  # not in order
    line = json.dumps({"input": graph}).encode()
    start = time.perf_counter()
    ((found,),) = stream_inputs(BytesIO(line), "pipe")
    assert time.perf_counter() - start < 60
    assert len(found.pair.input.nodes) == size


def test_graphs_are_held_out_by_input_whatever_the_order_of_their_edges():
    def path(size, order=1):
        return Graph(("x",) * (size + 2), tuple((i, i + 1, 0) for i in range(size + 1))[::order])

    pairs = [Pair(path(size, order), path(1)) for size in range(40) for order in (1, -1)]
    train, dev = hold_out(pairs, seed=0)
    assert (len(train), len(dev)) == (72, 8)
    assert overlap(train, dev) == 0
    assert overlap([Pair(path(5), "x")], [Pair(path(5, -1), "y"), Pair(path(6), "x")]) == 1
