"""From graphs to graphs, with a model that was trained: in Python and by the command."""

import json
from dataclasses import replace
from random import Random

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from typer.testing import CliRunner

from grapheme_nn import Graph, GraphTransformNet, TrainConfig, graph_to_data, is_acyclic, is_isomorphic, train
from grapheme_nn.candidates import EDGE_KINDS
from grapheme_nn.cli import app
from grapheme_nn.data import Pair, generate, write_pairs
from grapheme_nn.ensemble import Ensemble
from grapheme_nn.graph_data import data_to_graph

TINY = TrainConfig(width=32, hidden=24, layers=1, epochs=8, batch_size=16, learning_rate=5e-3)


def turned(graph):
    """The rule that is learned: every `f` becomes `g` with an `h` below it, and nothing else changes."""
    nodes, edges, top = [], [], {}
    for label in graph.nodes:
        nodes.append("h" if label == "f" else label)
        top[len(top)] = len(nodes) - 1
        if label == "f":
            nodes.append("g")
            edges.append((len(nodes) - 2, len(nodes) - 1, 0))
            top[len(top) - 1] = len(nodes) - 1
    below = {old: new - (graph.nodes[old] == "f") for old, new in top.items()}
    edges += [(top[source], below[target], kind) for source, target, kind in graph.edges]
    return Graph(tuple(nodes), tuple(edges))


def trees(count, size, seed=0):
    """Random trees of f, of one operand, and k, of two."""
    random, found = Random(seed), {}
    while len(found) < count:
        nodes, edges, roots = [], [], []
        for _ in range(random.randint(2, size)):
            label = random.choice("xyfk") if len(roots) > 1 else random.choice("xyf") if roots else random.choice("xy")
            nodes.append(label)
            for kind in range({"f": 1, "k": 2}.get(label, 0)):
                edges.append((roots.pop(), len(nodes) - 1, kind))
            roots.append(len(nodes) - 1)
        graph = Graph(tuple(nodes), tuple(edges))
        found[graph] = Pair(graph, turned(graph))
    return list(found.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("graphs") / "model"
    train(trees(400, 7), trees(60, 7, seed=1), TINY, out)
    return out


@pytest.fixture(scope="module")
def model(folder):
    return GraphTransformNet.load(folder)


def test_a_rule_is_learned_and_holds_in_graphs_much_larger_than_any_seen(model):
    pairs = trees(40, 40, seed=2)
    outputs = model.transform([pair.input for pair in pairs])
    right = sum(is_isomorphic(output, pair.target) for output, pair in zip(outputs, pairs, strict=True))
    assert right >= 20


def test_what_comes_out_is_of_the_kind_that_went_in(model):
    graph = Graph(("x", "f"), ((0, 1, 0),))
    as_graph, as_dict, as_nx, as_data = model.transform(
        [graph, graph.as_dict(), graph.to_networkx(), graph_to_data(graph)]
    )
    assert isinstance(as_graph, Graph)
    assert isinstance(as_dict, dict)
    assert isinstance(as_nx, nx.DiGraph)
    assert isinstance(as_data, Data)
    for other in (Graph.from_dict(as_dict), Graph.from_networkx(as_nx), data_to_graph(as_data)):
        assert is_isomorphic(as_graph, other)


def test_types_with_names_survive_pyg():
    graph = Graph(("a", "bc", ""), ((0, 1, "left"), (1, 2, 3), (0, 2, 0)))
    assert data_to_graph(graph_to_data(graph)) == graph


def test_numbers_in_x_are_labels_and_undirected_graphs_stay_so():
    data = Data(x=torch.tensor([6, 8]), edge_index=torch.tensor([[0, 1], [1, 0]]))
    assert data_to_graph(data) == Graph(("6", "8"), ((0, 1, 0),), directed=False)


def test_a_batch_of_graphs_is_not_one_graph():
    batch = Batch.from_data_list([graph_to_data(Graph(("a", "b"), ((0, 1, 0),)))] * 2)
    with pytest.raises(ValueError, match=r"it is a batch of graphs: give them one by one, batch.to_data_list\(\)"):
        data_to_graph(batch)
    assert [data_to_graph(data).nodes for data in batch.to_data_list()] == [("a", "b")] * 2


def test_a_score_is_a_probability_and_higher_for_what_the_model_says(model):
    pair = trees(1, 6, seed=3)[0]
    (output,), (score,) = model.transform([pair.input], return_scores=True)
    wrong = output._replace(nodes=("y",) * len(output.nodes))
    judged = model.log_probabilities([pair.input] * 2, [output, wrong])
    assert 0 < score <= 1
    assert judged[0] > judged[1]


def test_two_models_vote_on_graphs(model):
    pair = trees(1, 6, seed=4)[0]
    (output,) = Ensemble([model, model]).transform([pair.input])
    assert is_isomorphic(output, model.transform([pair.input])[0])


def some_dag(random):
    """Any DAG of up to ten nodes, with labels and types that no model has seen among them."""
    order = list(range(random.randint(1, 10)))
    random.shuffle(order)
    share = random.random() * 0.6
    pairs = [(i, j) for at, j in enumerate(order) for i in order[:at] if random.random() < share]
    edges = tuple((i, j, random.choice([0, 1, 2, "new"])) for i, j in pairs)
    return Graph(tuple(random.choice(["x", "y", "f", "k", "never seen"]) for _ in order), edges)


@given(st.integers(0, 2**32), st.sampled_from(["trained", *EDGE_KINDS]))
def test_outputs_are_acyclic_for_any_input(model, seed, which):
    """A hundred inputs at a time: ten thousand in every run, more with `make fuzz`."""
    net = model
    if which != "trained":
        torch.manual_seed(seed)
        config = replace(model.config, edges=which, width=16, hidden=8, labels=("x", "g"), target_edge_types=(0, 1))
        net = GraphTransformNet(config).eval()
        with torch.no_grad():
            for parameter in net.edges.parameters():
                parameter.mul_(4)  # sure of nonsense
    random = Random(seed)
    for output in net.transform([some_dag(random) for _ in range(100)]):
        edges = torch.tensor([edge[:2] for edge in output.edges], dtype=torch.long).view(-1, 2).t()
        assert is_acyclic(edges, len(output.nodes))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("x", "inputs must be a list|texts must be a list"),
        (Graph(("x",), ()), "put it in a list"),
        ({"nodes": ["x"]}, "put it in a list"),
        ([{"nodes": ["x"]}, 5], r"inputs\[1\] must be a str, a Graph, .* but is int 5"),
        (["text"], "this model reads graphs"),
        ([Graph(("x", "f"), ((0, 5, 0),))], "inputs.0. is no graph .*: edge 0 refers to node 5"),
        ([Graph(("x", "f"), ((0, 1, 0), (1, 0, 0)))], "cycle"),
        ([{"nodes": ["x"], "edge": []}], "edge"),
        ([Data(x=torch.zeros(2, 3), edge_index=torch.zeros(2, 0, dtype=torch.long))], "one integer per node"),
    ],
)
def test_what_is_no_graph_is_refused_in_a_sentence(model, given, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        model.transform(given)


def test_losses_of_texts_are_refused_before_anything_is_learned(tmp_path):
    with pytest.raises(ValueError, match="the loss path compares texts, but the targets are graphs"):
        train(trees(20, 5), [], replace(TINY, loss="path"), tmp_path)


def test_pairs_of_both_kinds_are_named(tmp_path):
    mixed = [*trees(20, 5), Pair("text", Graph(("x",), ()))]
    with pytest.raises(ValueError, match="the input of pair 20 is a text, but that of pair 0 is a graph"):
        train(mixed, [], TINY, tmp_path)


def test_a_unit_of_text_is_refused_for_graphs(tmp_path):
    with pytest.raises(ValueError, match="target_unit symbol is one of texts, but the pairs have graphs"):
        train(trees(20, 5), [], replace(TINY, target_unit="symbol"), tmp_path)


@pytest.mark.parametrize("morphs", [("merge", "lift", "split"), ("split", "rewire"), ("merge",), ("local_pool",)])
@pytest.mark.parametrize("loss", ["structural", "monotone"])
def test_every_chain_of_morphs_predicts_edges(tmp_path, morphs, loss):
    config = replace(TINY, width=16, hidden=8, epochs=1, morphs=morphs, loss=loss)
    result = train(trees(20, 5), [], config, tmp_path)
    assert result.epochs == 1


def test_undirected_targets_come_out_undirected(tmp_path):
    pairs = [
        Pair(pair.input._replace(directed=False), Graph(pair.input.nodes, pair.input.edges, directed=False))
        for pair in trees(60, 5)
    ]
    train(pairs, [], replace(TINY, width=16, hidden=8, epochs=2), tmp_path)
    (output,) = GraphTransformNet.load(tmp_path).transform([pairs[0].input])
    assert not output.directed
    assert all(source < target for source, target, _ in output.edges)


@pytest.mark.parametrize("task", ["parse", "unparse"])
def test_texts_become_graphs_and_graphs_texts(tmp_path, task):
    pairs = generate(task, 200, seed=0, length=7)
    train(pairs[:150], pairs[150:], replace(TINY, width=16, hidden=16, epochs=2), tmp_path)
    outputs = GraphTransformNet.load(tmp_path).transform([pair.input for pair in pairs[:5]])
    assert all(type(output) is type(pair.target) for output, pair in zip(outputs, pairs, strict=False))


def fans(count):
    """Chains of 6 to 8 nodes whose first node becomes the operand of all others: some of them are far from it."""
    random, found = Random(0), {}
    while len(found) < count:
        nodes = tuple(random.choices("abcd", k=random.randint(6, 8)))
        chain = Graph(nodes, tuple((at, at + 1, 0) for at in range(len(nodes) - 1)))
        found[chain] = Pair(chain, Graph(nodes, tuple((0, at, 0) for at in range(1, len(nodes)))))
    return list(found.values())


@pytest.mark.parametrize(("hops", "most_right"), [(0, 20), (2, 0)])
def test_with_hops_0_edges_are_learned_between_nodes_that_are_far_apart(tmp_path, hops, most_right):
    pairs = fans(120)
    train(pairs[:100], [], replace(TINY, width=16, hidden=8, epochs=6, parts=1, hops=hops), tmp_path)
    outputs = GraphTransformNet.load(tmp_path).transform([pair.input for pair in pairs[100:]])
    right = sum(is_isomorphic(output, pair.target) for output, pair in zip(outputs, pairs[100:], strict=True))
    assert 0.9 * most_right <= right <= most_right


def grapheme(*words, given=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=given)


def test_the_command_trains_predicts_evaluates_and_informs(tmp_path):
    data, config, out = tmp_path / "pairs.jsonl", tmp_path / "tiny.toml", tmp_path / "model"
    write_pairs(trees(120, 5), data)
    config.write_text("width = 16\nhidden = 8\nlayers = 1\nepochs = 2\n")
    trained = grapheme("train", data, "--config", config, "--out", out)
    assert trained.exit_code in (0, 1), trained.output
    given = json.dumps({"input": {"nodes": ["x", "f"], "edges": [[0, 1]]}, "id": 3}) + "\n"
    predicted = grapheme("predict", out, given=given)
    row = json.loads(predicted.stdout)
    assert row["id"] == 3
    assert set(row["output"]) >= {"nodes", "edges"}
    figures = json.loads(grapheme("evaluate", out, data, "--json", "--errors", 2).stdout)
    assert next(iter(figures)) == "exact_match"
    assert {"node_f1", "edge_f1", "edit_distance", "symbol_error_rate", "structural_loss"} <= set(figures)
    assert "structural" in grapheme("info", out).stdout
    assert "Turns a graph into a graph" in (out / "README.md").read_text()
