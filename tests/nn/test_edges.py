"""Edges that a network predicts: who is near whom, and the nearest that matches along a chain."""

from dataclasses import replace
from random import Random

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

from grapheme_nn import GraphTransformNet, ModelConfig, is_acyclic
from grapheme_nn.data import Graph
from grapheme_nn.data.expressions import permute
from grapheme_nn.graph_data import collate, encode
from grapheme_nn.morph import Merge, Morph, Split
from grapheme_nn.morph.base import before_split
from grapheme_nn.morph.operator import as_graph
from grapheme_nn.nn import edges as edges_module
from grapheme_nn.nn.edges import EdgePredictor, node_pairs, num_relations
from grapheme_nn.nn.nearest import NearestConsumer

CONFIG = ModelConfig(
    ("a", "b", "c"),
    input_unit="graph",
    target_unit="graph",
    edge_types=(0, 1),
    target_edge_types=(0, 1),
    loss="structural",
    width=16,
    hidden=8,
    heads=0,
    layers=1,
    parts=2,
)


def random_dag(random, nodes, share=0.4):
    order = list(range(nodes))
    random.shuffle(order)
    edges = {
        (order[i], order[j], random.randrange(2)) for j in range(nodes) for i in range(j) if random.random() < share
    }
    return Graph(tuple(random.choice("abcd") for _ in range(nodes)), tuple(sorted(edges)))


def network(**changes):
    torch.manual_seed(0)
    return GraphTransformNet(replace(CONFIG, **changes)).eval()


@pytest.mark.parametrize("hops", [1, 2, 3, 4, 0])
def test_pairs_are_those_at_most_so_many_edges_apart(hops):
    random = Random(0)
    for _ in range(10):
        graph = random_dag(random, 9, 0.2)
        edge_index = torch.tensor([edge[:2] for edge in graph.edges], dtype=torch.long).view(-1, 2).t()
        pairs = node_pairs(as_graph(torch.zeros(9, 1), edge_index), 0, hops)
        around = nx.Graph(edge_index.t().tolist())
        around.add_nodes_from(range(9))
        apart = dict(nx.all_pairs_shortest_path_length(around))
        wanted = {(i, j) for i in range(9) for j in range(9) if apart[i].get(j, 9) <= (hops or 9)}
        found = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
        assert set(found) == wanted
        assert len(found) == len(wanted)
        assert found == sorted(found)
        assert int(pairs.relation.max()) < num_relations(0, hops)
        far = [apart[i].get(j, 9) > 2 for i, j in found]
        assert (pairs.relation >= num_relations(0, 2)).tolist() == far


def test_a_pair_is_known_by_the_type_and_direction_of_the_edge_between():
    graph = as_graph(torch.zeros(3, 1), torch.tensor([[0, 1], [2, 2]]), edge_type=torch.tensor([1, 2]))
    relation = {(int(i), int(j)): int(r) for i, j, r in zip(*node_pairs(graph, 2, 2), strict=True)}
    assert len({relation[2, 0], relation[2, 1], relation[0, 2], relation[1, 2], relation[0, 1], relation[0, 0]}) == 6
    assert relation[0, 0] == relation[1, 1] == 0


def test_a_hub_leads_nowhere_so_that_pairs_grow_with_the_edges():
    leaves = edges_module.MOST_NEIGHBOURS + 1
    star = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    pairs = node_pairs(as_graph(torch.zeros(leaves + 1, 1), star), 0, 2)
    assert pairs.first.numel() == (leaves + 1) + 2 * leaves


def test_slots_are_those_of_the_graph_that_was_split():
    graph = as_graph(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]))
    before, parts = before_split(Split(4, 3)(graph))
    assert (before, parts) == (graph, 3)
    merged = Merge()(graph)
    assert before_split(merged) == (merged, 1)


@pytest.mark.parametrize("kind", ["operands", "consumer", "independent", "undirected"])
def test_many_pairs_are_scored_in_chunks_and_those_that_may_be_chosen_stay(monkeypatch, kind):
    net, batch = network(edges=kind), collate(encode([random_dag(Random(1), 30, 0.15)], "graph"))
    with torch.no_grad():
        for parameter in net.edges.parameters():
            parameter.mul_(3)
        whole = net(batch).candidates
        monkeypatch.setattr(edges_module, "MOST_AT_ONCE", 20)
        chunked = net(batch).candidates
    wanted = whole.likely()
    assert 0 < wanted.first.numel() <= whole.first.numel()
    for name in ("first", "second"):
        assert torch.equal(getattr(chunked, name), getattr(wanted, name))
    for name in ("log_prob", "none"):
        assert torch.allclose(getattr(chunked, name), getattr(wanted, name), atol=1e-6)


@pytest.mark.parametrize("kind", ["operands", "consumer", "independent", "undirected"])
def test_outputs_of_untrained_networks_are_acyclic(kind):
    net, random = network(edges=kind), Random(2)
    with torch.no_grad():
        for parameter in net.edges.parameters():
            parameter.mul_(4)  # sure of nonsense
    graphs = [random_dag(random, random.randint(1, 12)) for _ in range(300)]
    for output in net.transform(graphs):
        edge_index = torch.tensor([edge[:2] for edge in output.edges], dtype=torch.long).view(-1, 2).t()
        assert is_acyclic(edge_index, len(output.nodes))


@pytest.mark.parametrize("kind", ["operands", "consumer", "independent", "undirected"])
def test_renumbering_the_nodes_of_an_input_changes_no_probability(kind):
    net, random = network(edges=kind), Random(3)
    for _ in range(10):
        graph = random_dag(random, 8, 0.25)
        one, other = (net(collate(encode([each], "graph"))) for each in (graph, permute(graph, random)))
        for name in ("log_prob", "none"):
            ours, theirs = (getattr(each.candidates, name).flatten().sort().values for each in (one, other))
            assert torch.allclose(ours, theirs, atol=1e-5)
        labels = [each.label_log_prob.flatten().sort().values for each in (one, other)]
        assert torch.allclose(*labels, atol=1e-5)


def test_the_nearest_consumers_and_none_sum_to_one():
    torch.manual_seed(0)
    config = replace(CONFIG, input_unit="codepoint", edges="consumer")
    graph = Morph.chains(torch.zeros(9, 16), torch.tensor([0, 5, 9]))
    found = NearestConsumer(config)(graph, 3 * torch.randn(2, 5, 16))
    total = found.none[:, 0].exp().index_add(0, found.first, found.log_prob.exp().sum(1))
    assert torch.allclose(total, torch.ones(9), atol=1e-5)


def test_of_two_that_match_the_nearest_is_pointed_at():
    config = replace(CONFIG, input_unit="codepoint", edges="consumer")
    module = NearestConsumer(config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.query.bias.fill_(10.0)
        module.key.weight[:, 0] = 1.0  # what has a 1 in channel 0 matches
        module.key.bias.fill_(-0.5)
        module.side[2].bias.copy_(torch.tensor([0.0, 9.0, 0.0]))  # to the right
    x = torch.zeros(1, 5, 16)
    x[0, [2, 4], 0] = 1.0
    graph = Morph.chains(torch.zeros(5, 16), torch.tensor([0, 5]))
    found = module(graph, x)
    to = {int(i): int(found.second[(found.first == i) & (found.log_prob.amax(1) > -1.5)]) for i in (0, 1, 2, 3)}
    assert to == {0: 2, 1: 2, 2: 4, 3: 4}


def test_an_unknown_type_of_edge_is_a_type_of_its_own_and_no_error():
    net = network()
    net.transform([Graph(("a", "b"), ((0, 1, "left"),))])


def test_candidates_know_their_types_by_what_data_calls_them():
    net = network(target_edge_types=(3, "left"))
    batch = collate(encode([Graph(("a", "b"), ((0, 1, 0),))], "graph"))
    found = net(batch).candidates
    (target,) = encode([Graph(("a", "b"), ((0, 1, "left"), (0, 1, 3), (0, 1, 7)))], "graph")
    assert found.type_index(torch.from_numpy(target.edge_type)).tolist() == [1, 0, -1]


def test_a_predictor_shows_no_parameter_that_cannot_learn():
    for kind in ("operands", "consumer", "independent"):
        net = network(edges=kind)
        data = collate(encode([random_dag(Random(4), 8)], "graph"))
        target = collate(encode([Graph(("a", "b", "c"), ((0, 1, 0), (1, 2, 1)))], "graph"))
        net.objective(net(data), target).mean.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.edges.parameters()), kind
    assert isinstance(net.edges, EdgePredictor)
    assert isinstance(data, Data)
