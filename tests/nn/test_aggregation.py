"""Aggregation: what each way gives, where its gradient goes, and that PyG's message passing takes it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch_geometric.nn import MessagePassing

from grapheme_nn.nn import HOWS, Aggregate, aggregate

INDEX = torch.tensor([2, 0, 2, 0, 2])
MESSAGES = torch.tensor([[1.0, 5.0], [3.0, -1.0], [-9.0, 2.0], [3.0, 0.0], [4.0, 4.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("sum", [[6, -1], [0, 0], [-4, 11]]),
        ("mean", [[3, -0.5], [0, 0], [-4 / 3, 11 / 3]]),
        ("max", [[3, 0], [0, 0], [4, 5]]),
        ("max_norm", [[3, -1], [0, 0], [-9, 2]]),
    ],
)
def test_the_answer_worked_out_by_hand(how, expected):
    assert torch.allclose(aggregate(MESSAGES, INDEX, 3, how), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("how", HOWS)
def test_gradients_are_exact(how):
    torch.manual_seed(1)
    message = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda m: aggregate(m, INDEX, 4, how), (message,))


@pytest.mark.parametrize("how", ["max", "max_norm"])
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_a_loser_gets_exactly_no_gradient_and_one_winner_all(how, seed, ties):
    torch.manual_seed(seed)
    message = torch.randn(7, 3, dtype=torch.float64)
    message = message.sign() if ties else message
    message.requires_grad_()
    index = torch.randint(0, 3, (7,))
    sent = torch.rand(4, 3, dtype=torch.float64) + 0.1
    aggregate(message, index, 4, how).backward(sent)
    for node in index.unique():
        rows = (index == node).nonzero()[:, 0]
        for channel in range(3):
            score = message[rows, channel] if how == "max" else message[rows].norm(dim=1)
            expected = torch.zeros(len(rows), dtype=torch.float64)
            expected[(score == score.max()).nonzero()[0, 0]] = sent[node, channel]
            assert torch.equal(message.grad[rows, channel], expected)


@pytest.mark.parametrize("how", HOWS)
def test_no_messages_give_zeros(how):
    message = torch.zeros(0, 2, requires_grad=True)
    out = aggregate(message, torch.zeros(0, dtype=torch.long), 3, how)
    assert out.tolist() == [[0, 0]] * 3
    out.sum().backward()


class Neighbours(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


@pytest.mark.parametrize("how", HOWS)
def test_pyg_message_passing_takes_it(how):
    layer = Neighbours(aggr=Aggregate(how))
    edge_index = torch.stack([torch.arange(5), INDEX])
    assert torch.equal(layer(MESSAGES, edge_index), aggregate(MESSAGES, INDEX, 5, how))


def test_sorted_messages_may_come_with_pointers():
    pointers = torch.tensor([0, 2, 2, 5])
    out = Aggregate("sum")(MESSAGES, ptr=pointers)
    assert torch.equal(out, aggregate(MESSAGES, torch.tensor([0, 0, 2, 2, 2]), 3, "sum"))


@pytest.mark.parametrize(
    ("sentence", "call"),
    [
        ("unknown aggregation 'min': choose one of sum, mean, max, max_norm", lambda: aggregate(MESSAGES, INDEX, 3, "min")),
        ("unknown aggregation 'min'", lambda: Aggregate("min")),
        (r"\[e, d\] and \[e\]", lambda: aggregate(MESSAGES, INDEX[:2], 3)),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_a_sentence(sentence, call):
    with pytest.raises(ValueError, match=sentence):
        call()
