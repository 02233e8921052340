"""Types of edges go through every operator: none is lost, none is made up, and parallel edges of two types stay two."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data

from grapheme_nn.morph import Lift, LocalPool, Merge, Rewire, SoftPool, Split, Tour

CHANNELS = 3
OPERATORS = {
    **{
        f"merge_{name}": lambda name=name: Merge(0.5, estimator=name, temperature=0.5, candidates="window")
        for name in ("soft", "straight_through", "gumbel", "reinforce")
    },
    "soft_pool": lambda: SoftPool(CHANNELS, 2),
    "local_pool": lambda: LocalPool(CHANNELS, 0.7),
    "split": lambda: Split(CHANNELS, 2),
    "rewire": lambda: Rewire(CHANNELS, 2),
    "lift": lambda: Lift(CHANNELS),
}
CARRY = [name for name in OPERATORS if name.startswith("merge") or name.endswith("pool")]  # A'_t = M^T A_t M
# 0 -> 1 twice, of two types; a diamond; a name is a large number
EDGES, TYPES = torch.tensor([[0, 0, 0, 1, 2], [1, 1, 2, 3, 3]]), torch.tensor([5, -(2**60), 5, 9, 5])


def operator(name, training=True):
    torch.manual_seed(0)
    return OPERATORS[name]().double().train(training)


def features(n=4, seed=0):
    return torch.randn(n, CHANNELS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def seeded(module, *graph, **more):
    torch.manual_seed(1)
    return module(*graph, **more)


def adjacency(morph, kind=None):
    edges, weights = morph.edge_index, morph.edge_weight
    if kind is not None:
        edges, weights = edges[:, morph.edge_type == kind], weights[morph.edge_type == kind]
    A = torch.zeros(morph.num_nodes, morph.num_nodes, dtype=torch.float64)
    return A.index_put(tuple(edges), weights.detach(), accumulate=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "lift"])
def test_with_types_forgotten_the_edges_are_those_of_a_graph_without_types(name, training):
    module = operator(name, training)
    typed, plain = seeded(module, features(), EDGES, edge_type=TYPES), seeded(module, features(), EDGES)
    assert plain.edge_type is None
    assert typed.edge_type.shape == typed.edge_weight.shape
    torch.testing.assert_close(adjacency(typed), adjacency(plain))
    torch.testing.assert_close(typed.x, plain.x, rtol=0, atol=0)


@pytest.mark.parametrize("name", CARRY)
def test_the_edges_of_a_type_become_what_they_would_alone(name):
    module, weight = operator(name), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    morph = seeded(module, features(), EDGES, weight, edge_type=TYPES)
    for kind in TYPES.unique().tolist():  # with other weights 0, all is as it was but for the edges of this type
        alone = seeded(module, features(), EDGES, torch.where(kind == TYPES, weight, 0))
        torch.testing.assert_close(adjacency(morph, kind), adjacency(alone))
    keys = torch.cat([morph.edge_index, morph.edge_type[None]])
    assert torch.unique(keys, dim=1).size(1) == keys.size(1)


def test_operands_that_merge_keep_the_types_of_their_edges():
    """5 and 3 become one node: what consumes them does so by two edges."""
    x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 0.0, 1.0]])
    merge = Merge(0.9, candidates="all").eval()
    morph = merge(Data(x=x, edge_index=torch.tensor([[0, 1], [2, 2]]), edge_type=torch.tensor([2, 1])))
    assert morph.edge_index.tolist() == [[0, 0], [1, 1]]
    assert (morph.edge_type.tolist(), morph.edge_weight.tolist()) == ([1, 2], [1.0, 1.0])


def test_what_split_and_rewire_insert_is_of_type_0_and_the_rest_keeps_its_type():
    split = operator("split")(features(), EDGES, edge_type=TYPES)
    assert split.edge_type.tolist() == [*TYPES.tolist(), 0, 0, 0, 0]
    rewired = operator("rewire")(features(), EDGES, edge_type=TYPES)
    assert rewired.edge_type[:5].tolist() == TYPES.tolist()
    assert rewired.edge_index.size(1) > 5
    assert not rewired.edge_type[5:].any()
    kept = operator("rewire", training=False)(features() * 0.1, EDGES, edge_type=TYPES)
    assert kept.edge_type.tolist() == TYPES.tolist()


@pytest.mark.parametrize("name", CARRY)
def test_lift_brings_the_types_back_and_a_tour_has_none(name):
    lifted = nn.Sequential(operator(name), operator("lift"))(Data(x=features(), edge_index=EDGES, edge_type=TYPES))
    assert torch.equal(lifted.edge_type, TYPES)
    assert torch.equal(lifted.edge_index, EDGES)
    assert Tour(CHANNELS).double()(lifted).edge_type is None


@pytest.mark.parametrize("name", [*CARRY, "rewire"])
def test_gradients_go_through_typed_edges_exactly(name):
    """In the weights of edges; in what decides, the rows of `check gradients` look."""
    module, x = operator(name, training=name in ("merge_soft", "soft_pool", "local_pool")), features()
    weight = (torch.rand(5, dtype=torch.float64) + 0.5).requires_grad_()
    assert gradcheck(lambda w: seeded(module, x, EDGES, w, edge_type=TYPES).edge_weight, (weight,))


@st.composite
def typed_dags(draw):
    """A batch of two DAGs with parallel edges, the second perhaps empty, whose numbers do not tell their order."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    graphs = []
    for n in (draw(st.integers(1, 6)), draw(st.integers(0, 3))):
        ends = torch.randint(0, max(n, 1), (2, 2 * n), generator=generator).sort(0).values
        ends = ends[:, ends[0] < ends[1]]
        ends = torch.cat([ends, ends[:, :2]], 1)
        kinds = torch.randint(-1, 4, (ends.size(1),), generator=generator)
        number = torch.randperm(n, generator=generator)
        graphs.append(Data(x=features(n, n), edge_index=number[ends] if n else ends, edge_type=kinds))
    return Batch.from_data_list(graphs)


def typed(graph):
    return sorted(torch.cat([graph.edge_index, graph.edge_type[None]]).T.tolist())


@settings(max_examples=60)
@given(typed_dags(), st.lists(st.sampled_from(sorted(OPERATORS)), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_after_any_chain_every_edge_has_a_type_that_there_was_or_0(data, names, training, through_pyg):
    graph, known = data, {0, *data.edge_type.tolist()}
    for name in names:
        if name == "lift" and (isinstance(graph, Data) or (graph.lifted_to or graph).before is None):
            continue
        graph = operator(name, training)(graph)
        assert graph.edge_type.dtype == torch.long
        assert graph.edge_type.shape == graph.edge_weight.shape == graph.edge_index.shape[1:]
        assert graph.structure_types.shape == graph.structure_edges.shape[1:]
        assert known.issuperset(graph.edge_type.tolist())
        again = graph.as_data()
        assert typed(again) == typed(graph)
        if through_pyg and graph.order is None:
            graph = again


@pytest.mark.parametrize(
    ("types", "sentence"),
    [
        (TYPES[1:], r"edge_type must be one integer per edge, but is torch.int64 \[4\] for 5 edges"),
        (TYPES.float(), r"edge_type must be one integer per edge, but is torch.float32 \[5\] for 5 edges"),
        (TYPES[:, None], "edge_type must be one integer per edge"),
        (TYPES.to("meta"), "edge_type is on meta, but edge_index is on cpu"),
    ],
)
def test_types_that_are_not_one_integer_per_edge_are_answered_by_a_sentence(types, sentence):
    for given_graph in ((features(), EDGES), (Data(x=features(), edge_index=EDGES, edge_type=types),)):
        more = {"edge_type": types} if len(given_graph) == 2 else {}
        with pytest.raises(ValueError, match=sentence):
            operator("split")(*given_graph, **more)
