"""A walk around a tree."""

import pytest
import torch

from grapheme_nn import GraphTransformNet, ModelConfig
from grapheme_nn.data import Graph
from grapheme_nn.graph_data import collate, encode
from grapheme_nn.morph import Tour
from grapheme_nn.morph.operator import as_graph


def walk(edges, types, nodes):
    graph = as_graph(torch.arange(nodes)[:, None].float(), torch.tensor(edges).t(), edge_type=torch.tensor(types))
    tour = Tour(1)
    with torch.no_grad():
        tour.visit.weight.zero_()
        tour.left.weight.zero_()
    return tour(graph)


def test_a_tree_is_walked_around_in_the_order_of_its_operands():
    # 4 * (1 + 2): * is 0, + is 3
    morph = walk([(4, 0), (3, 0), (1, 3), (2, 3)], [0, 1, 0, 1], 5)
    assert morph.x[:, 0].tolist() == [0, 4, 0, 3, 1, 3, 2, 3, 0]
    assert morph.is_chain
    exchanged = walk([(4, 0), (3, 0), (1, 3), (2, 3)], [1, 0, 0, 1], 5)
    assert exchanged.x[:, 0].tolist() == [0, 3, 1, 3, 2, 3, 0, 4, 0]


def test_a_node_used_twice_is_walked_around_once():
    # 1 + 1, where 1 is sin of 0
    morph = walk([(0, 1), (1, 2), (1, 2)], [0, 0, 1], 3)
    assert morph.x[:, 0].tolist() == [2, 1, 0, 1, 2, 1, 2]


def test_visits_come_from_their_node_alone():
    morph = walk([(4, 0), (3, 0), (1, 3), (2, 3)], [0, 1, 0, 1], 5)
    assert morph.assignment.is_hard
    assert morph.main_nodes.tolist() == morph.x[:, 0].long().tolist()


def test_graphs_of_a_batch_are_walked_one_after_the_other():
    config = ModelConfig(("a", "b"), input_unit="graph", edge_types=(0,), morphs=("tour", "split"), heads=0, width=16)
    graphs = [Graph(("a", "b"), ((1, 0, 0),)), Graph(("b",), ()), Graph(("a", "a", "b"), ((0, 2, 0), (1, 2, 0)))]
    predicted = GraphTransformNet(config)(collate(encode(graphs, "graph")))
    assert predicted.mask.sum(1).tolist() == [2 * 3, 2 * 1, 2 * 5]


def test_a_tour_refuses_no_channels():
    with pytest.raises(ValueError, match="channels must be a whole number, at least 1, but is 0"):
        Tour(0)
