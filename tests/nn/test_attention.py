"""The types of edges bias attention between their ends, and nothing else; without types there is no such thing."""

import pytest
import torch
from torch.autograd import gradcheck

from grapheme_nn import ModelConfig
from grapheme_nn.morph.base import Condition, Morph
from grapheme_nn.nn.attention import Attention, EdgeBias
from grapheme_nn.nn.layer import Layer, Layers
from grapheme_nn.nn.structure import Structure

# A diamond with two parallel edges, and a chain of two whose numbers do not tell its order
EDGES = torch.tensor([[0, 0, 1, 2, 0, 5], [1, 2, 3, 3, 1, 4]])
TYPES = torch.tensor([1, 2, 0, 1, 2, 2])
BATCH = torch.tensor([0, 0, 0, 0, 1, 1])


def structure(types=TYPES, weight=None):
    return Structure.of(Morph.start(torch.zeros(6, 8).double(), EDGES, weight, BATCH, edge_type=types))


def edge_bias(heads=2):
    torch.manual_seed(0)
    module = EdgeBias(heads, 2).double()
    torch.nn.init.normal_(module.bias)
    return module


def layer(types=2):
    torch.manual_seed(0)
    return Layer(8, 2, 3, 0.0, types=types).double()


def test_a_bias_stands_at_the_two_ends_of_each_edge_by_type_and_direction():
    module, weight = edge_bias(), torch.rand(6).double()
    expected = torch.zeros(2, 2, 4, 4).double()
    row = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 0)]  # of each node: graph, place in topological order
    for (s, t), kind, w in zip(EDGES.T.tolist(), TYPES.tolist(), weight, strict=True):
        (graph, source), (_, target) = row[s], row[t]
        expected[graph, :, target, source] += w * module.bias[kind]
        expected[graph, :, source, target] += w * module.bias[3 + kind]
    torch.testing.assert_close(module(structure(weight=weight)), expected)


def test_attention_adds_the_bias_to_its_scores():
    torch.manual_seed(0)
    attention, x, bias = Attention(8, 2).double(), torch.randn(2, 4, 8).double(), edge_bias()(structure())
    mask = structure().mask
    query = attention.query(x).view(2, 4, 2, 2)
    key, value = attention.key_value(x).view(2, 4, 2, 2, 2).unbind(2)
    score = torch.einsum("bnhc,bmhc->bhnm", query, key) / 2**0.5 + bias
    share = score.masked_fill(~mask[:, None, None, :], -torch.inf).softmax(3)
    expected = attention.out(torch.einsum("bhnm,bmhc->bnhc", share, value).flatten(2))
    torch.testing.assert_close(attention(x, x, mask, bias), expected)


def test_gradients_of_the_bias_are_exact_in_it_and_in_the_weights_of_edges():
    module = edge_bias()

    def fn(bias, weight):
        return torch.func.functional_call(module, {"bias": bias}, (structure(weight=weight),))

    assert gradcheck(fn, (module.bias, torch.rand(6, dtype=torch.float64, requires_grad=True)))


@pytest.mark.parametrize("conditioned", [False, True])
def test_attention_alone_tells_types_apart_and_features_of_a_graph_have_no_bias(conditioned):
    module, x = layer(), torch.randn(2, 4, 8).double()
    condition = Condition(torch.randn(2, 3, 8).double(), torch.ones(2, 3).bool()) if conditioned else None
    module.messages.typed = module.recurrence.typed = None
    swapped = structure(types=TYPES[[1, 0, 2, 3, 4, 5]])
    torch.testing.assert_close(module(x, structure(), condition), module(x, swapped, condition))  # 0 at first
    torch.nn.init.normal_(module.edge_bias.bias)
    assert not torch.allclose(module(x, structure(), condition), module(x, swapped, condition))
    # Node 4 and 5 are another graph, whose types did not change.
    torch.testing.assert_close(module(x, structure(), condition)[1, :2], module(x, swapped, condition)[1, :2])


def test_a_graph_whose_edges_have_no_types_has_no_bias():
    module, x = layer(), torch.randn(2, 4, 8).double()
    torch.nn.init.normal_(module.edge_bias.bias)
    with_bias = module(x, structure(types=None), None)
    module.edge_bias = None
    torch.testing.assert_close(with_bias, module(x, structure(types=None), None), rtol=0, atol=0)


@pytest.mark.parametrize(("heads", "types", "expected"), [(2, (0, 1), True), (0, (0, 1), False), (2, (), False)])
def test_only_networks_with_types_and_attention_have_the_parameter(heads, types, expected):
    layers = Layers(ModelConfig(("a",), width=8, hidden=3, heads=heads, edge_types=types), 1)
    assert ("layers.0.edge_bias.bias" in layers.state_dict()) is expected
