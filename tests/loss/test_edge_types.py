"""The structural loss tells types of edges apart, of hard graphs and of what a network predicts."""

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data

from grapheme_nn import text_to_graph
from grapheme_nn.candidates import EDGE_KINDS, CandidateEdges
from grapheme_nn.data import Graph
from grapheme_nn.evaluate import evaluate
from grapheme_nn.loss import StructuralLoss
from grapheme_nn.loss.padded import pad_pair
from grapheme_nn.morph import Morph
from grapheme_nn.predicted import PredictedGraph, Vocabulary

NAME = -(2**61)  # a type that has a name has a number such as this
SHARP = {"temperature": 0.03, "iterations": 500}


def graph(labels, edges, **more):
    """Edges (source, target, type)."""
    columns = torch.tensor(edges, dtype=torch.long).reshape(-1, 3).T
    return Data(
        x=torch.tensor([ord(each) for each in labels], dtype=torch.long),
        edge_index=columns[:2],
        edge_type=columns[2],
        **more,
    )


def random_dag(rng):
    n = rng.randint(0, 5)
    edges = [(i, j, kind) for i in range(n) for j in range(i + 1, n) for kind in (0, 1, NAME) if rng.random() < 0.25]
    return graph([rng.choice("abc") for _ in range(n)], edges)


def without_types(data):
    data = data.clone()
    del data.edge_type
    return data


MINUS = graph("53-", [(0, 2, 0), (1, 2, 1)])
TURNED = graph("53-", [(0, 2, 1), (1, 2, 0)])


def test_5_minus_3_is_not_3_minus_5():
    loss = StructuralLoss(**SHARP)
    found = loss(MINUS, TURNED)
    assert float(found.edge) == pytest.approx(4, abs=0.1)  # two edges lost, two edges new
    assert float(found.node) == pytest.approx(0, abs=1e-6)
    assert float(loss(MINUS, MINUS).total) == pytest.approx(0, abs=1e-6)
    assert float(loss(without_types(MINUS), TURNED).total) == pytest.approx(0, abs=1e-6)
    one_wrong = loss(MINUS, graph("53-", [(0, 2, 0), (1, 2, NAME)]))
    assert float(one_wrong.edge) == pytest.approx(2, abs=0.1)


def test_edges_overlap_with_those_of_their_own_type_summed_over_all_pairs():
    torch.manual_seed(0)
    predicted = graph("abcd", [(0, 1, 3), (0, 3, NAME), (2, 1, 3), (0, 1, 8)], edge_weight=torch.rand(4).double())
    target = graph("xyz", [(2, 0, 3), (1, 2, 3), (0, 1, 8), (1, 2, 7)], edge_weight=torch.rand(4).double())
    batches = [Batch.from_data_list([MINUS, side]) for side in (predicted, target)]
    for batch, side in zip(batches, (predicted, target), strict=True):
        batch.edge_weight = torch.cat([torch.ones(2).double(), side.edge_weight])
    x, y = pad_pair(*batches)
    plan = torch.rand(2, 5, 4, dtype=torch.float64)
    found = x.edges.overlap(y.edges, plan)
    for side, (own, other, P) in enumerate(((predicted, target, plan[1]), (target, predicted, plan[1].T))):
        for at, (s, t) in enumerate(own.edge_index.T.tolist()):
            parts = [
                w * P[s, p] * P[t, q]
                for w, (p, q), kind in zip(other.edge_weight, other.edge_index.T, other.edge_type, strict=True)
                if kind == own.edge_type[at]
            ]
            torch.testing.assert_close(found[side][2 + at], sum(parts, torch.zeros(()).double()))


@pytest.mark.parametrize("setting", [StructuralLoss, StructuralLoss.edit, lambda: StructuralLoss(temperature=0.001)])
def test_typed_graphs_are_never_at_a_negative_distance_at_zero_from_themselves_and_symmetric(setting):
    rng, loss = Random(0), setting()
    graphs = [random_dag(rng) for _ in range(301)]
    for offset in range(3):
        x = Batch.from_data_list(graphs[:300])
        y = Batch.from_data_list([graphs[(i + offset) % 301] for i in range(300)])
        forth, back = loss(x, y), loss(y, x)
        assert float(forth.total.min()) > -1e-6
        torch.testing.assert_close(forth.total, back.total, rtol=1e-5, atol=1e-5)
        if not offset:
            assert float(forth.total.max()) < 1e-6


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_nodes_and_edges_and_the_rest_of_the_batch_do_not_matter(seed):
    rng, loss = Random(seed), StructuralLoss()
    pairs = [(random_dag(rng), random_dag(rng)) for _ in range(3)]
    together = loss(*(Batch.from_data_list(list(side)) for side in zip(*pairs, strict=True))).total
    for number, (x, y) in enumerate(pairs):
        torch.testing.assert_close(loss(x, y).total[0], together[number], rtol=1e-5, atol=1e-6)
    x = pairs[0][0]
    order, shuffled = torch.randperm(x.num_nodes), torch.randperm(x.edge_index.size(1))
    place = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))
    same = Data(x=x.x[order], edge_index=place[x.edge_index][:, shuffled], edge_type=x.edge_type[shuffled])
    assert abs(float(loss(x, same).total)) < 1e-6


def test_graphs_whose_edges_are_all_of_one_type_are_compared_to_the_bit_as_those_without():
    loss = StructuralLoss(context=0.2)
    chains = [graph("abcd", [(i, i + 1, kind) for i in range(3)]) for kind in (0, NAME)]
    other = text_to_graph("abd")
    for chain in chains:
        typed = graph("abd", [(0, 1, chain.edge_type[0]), (1, 2, chain.edge_type[0])])
        for term, plain in zip(loss(chain, typed), loss(without_types(chain), other), strict=True):
            assert torch.equal(term, plain)
        assert torch.equal(loss(chain, other).total, loss(without_types(chain), other).total)


def test_chains_with_types_are_told_apart_as_other_graphs_are():
    x, y = graph("abc", [(0, 1, 0), (1, 2, 1)]), graph("abc", [(0, 1, 0), (1, 2, 2)])
    assert float(StructuralLoss(**SHARP)(x, y).edge) == pytest.approx(2, abs=0.1)
    assert pad_pair(x, y)[0].edges.chain is None


@pytest.mark.parametrize(
    ("types", "sentence"),
    [
        (torch.zeros(3).long(), r"edge_type of the predicted graph must have shape \[2\], but has \[3\]"),
        (torch.zeros(2), "edge_type of the predicted graph must be integers, but is torch.float32"),
    ],
)
def test_types_that_are_not_one_integer_per_edge_are_refused_in_a_sentence(types, sentence):
    wrong = MINUS.clone()
    wrong.edge_type = types
    with pytest.raises(ValueError, match=sentence):
        StructuralLoss()(wrong, MINUS)


FIRST, SECOND = torch.tensor([0, 1, 2, 2, 3]), torch.tensor([1, 0, 0, 1, 4])
KINDS = torch.tensor([4, NAME])


def predicted_graph(kind, label_score, score, none):
    """Three slots and two; labels void, copying, a and b."""
    candidates = CandidateEdges.of(kind, FIRST, SECOND, score, none, KINDS)
    edges, batch = torch.tensor([[0, 1, 3], [1, 2, 4]]), torch.tensor([0, 0, 0, 1, 1])
    slots = Morph.start(label_score.new_zeros(5, 1), edges, None, batch)
    vocabulary, unit = Vocabulary(torch.tensor([97, 98]), torch.tensor([2, 3])), torch.full((2, 3), 97)
    label = label_score.log_softmax(2)
    return PredictedGraph(label, None, slots, label_score, unit, vocabulary, candidates)


@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        (r"of a slot sum to 7.389, not to 1: give log-probabilities, logits.log_softmax\(2\)", lambda p: replace(p, label_log_prob=p.label_log_prob + 2)),
        ("of a slot sum to nan", lambda p: replace(p, label_log_prob=p.label_log_prob * torch.nan)),
        (r"unit has shape \[2, 2\], but graph has \[2, 3\] graphs and slots", lambda p: replace(p, unit=p.unit[:, :2])),
        (r"existence of graph must lie in \[0, 1\], but ranges from 2.0", lambda p: replace(p, graph=replace(p.graph, existence=torch.full((5,), 2.0)))),
        (r"edge_weight of graph must lie in \[0, inf\], but ranges from -1.0", lambda p: replace(p, graph=replace(p.graph, edge_weight=-torch.ones(3)))),
        (r"next_log_prob\) must lie in \[0, 1\]", lambda p: replace(p, next_log_prob=torch.ones(2, 4, 2))),
        (r"of candidates must lie in \[0, 1\]", lambda p: replace(p, candidates=replace(p.candidates, log_prob=p.candidates.log_prob + 9))),
    ],
)  # fmt: skip
def test_a_predicted_graph_whose_numbers_are_no_probabilities_is_refused(sentence, change):
    predicted = predicted_graph("independent", *scores("independent"))
    with pytest.raises(ValueError, match=sentence):
        change(predicted)
    change(replace(predicted, checked=False))  # what a network predicts is not looked at


def scores(kind):
    torch.manual_seed(0)
    columns = 3 if kind == "operands" else 2
    none = 1 if kind == "consumer" else columns
    shapes = ((2, 3, 4), (5, columns), (5, none))
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


WANTED = Batch.from_data_list([graph("ab", [(0, 1, NAME)]), graph("ba", [(1, 0, 4)])])


@pytest.mark.parametrize("kind", EDGE_KINDS)
def test_a_predicted_graph_offers_its_candidates_with_probabilities_and_types(kind):
    predicted = predicted_graph(kind, *scores(kind))
    data = predicted.as_data()
    assert data.edge_index.shape == (2, 10)
    first, second = data.edge_index.flip(0) if kind == "operands" else data.edge_index
    assert first.tolist() == FIRST.repeat_interleave(2).tolist()
    assert second.tolist() == SECOND.repeat_interleave(2).tolist()
    assert data.edge_type.tolist() == KINDS.tolist() * 5
    for at in range(10):
        expected = predicted.candidates.log_prob[at // 2, at % 2].exp()
        torch.testing.assert_close(data.edge_weight[at], expected)


def test_an_edge_leads_from_an_operand_to_what_uses_it():
    """Slot 2 points at slot 0 as its operand: the edge is 0 -> 2, as in `MINUS`."""
    label_score, score, none = (part.detach() for part in scores("operands"))
    score[2, 0] = 50.0
    edges, weight = predicted_graph("operands", label_score, score, none).edges()
    surest = int(weight.argmax())
    assert edges[:, surest].tolist() == [0, 2]
    assert float(weight[surest]) == pytest.approx(1)


@pytest.mark.parametrize("kind", EDGE_KINDS)
def test_the_loss_of_a_predicted_graph_has_an_exact_gradient_and_sees_types(kind):
    loss, given_scores = StructuralLoss(temperature=0.3), scores(kind)

    def value(*parts):
        return loss(predicted_graph(kind, *parts), WANTED).total

    assert gradcheck(value, given_scores)
    assert bool((value(*given_scores) > 0).all())
    other = WANTED.clone()
    other.edge_type = other.edge_type.flip(0)
    found = [loss(predicted_graph(kind, *given_scores), target).edge for target in (WANTED, other)]
    assert bool((found[0] != found[1]).all())


def test_evaluation_of_graphs_sees_types():
    one, other = Graph(("5", "3", "-"), ((0, 2, 0), (1, 2, 1))), Graph(("5", "3", "-"), ((0, 2, 1), (1, 2, 0)))
    assert evaluate([one, other], [one, other]).structural_loss == pytest.approx(0, abs=1e-6)
    assert evaluate([other], [one]).structural_loss > 0.5
    named = one._replace(edges=((0, 2, "left"), (1, 2, "right")))
    assert evaluate([named], [one._replace(edges=((0, 2, "right"), (1, 2, "left")))]).structural_loss > 0.5
