"""Predicted graphs and targets for tests of objectives, made from log-probabilities and labels."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from grapheme_nn.morph import Morph
from grapheme_nn.predicted import PredictedGraph, Vocabulary


def chain(n):
    return torch.stack([torch.arange(n - 1), torch.arange(1, n)]) if n else torch.zeros(2, 0, dtype=torch.long)


def make_predicted(label_log_prob, slots, next_log_prob=None, edges=None):
    """Predicted graphs of `slots` (a list of B numbers) slots each, from label_log_prob [B, s, V].

    Column 0 is the void, 1 copying, the others are labels; they need not be probabilities. Copying gives unit 0, which no target has. Slots are chains,
    or have the `edges` given for each graph.
    """
    owner = torch.arange(len(slots)).repeat_interleave(torch.tensor(slots, dtype=torch.long))
    first = torch.tensor([0, *slots]).cumsum(0)
    parts = [chain(n) for n in slots] if edges is None else edges
    edge_index = torch.cat(
        [torch.zeros(2, 0, dtype=torch.long), *(p + f for p, f in zip(parts, first, strict=False))], 1
    )
    graph = Morph.start(label_log_prob.new_zeros(owner.numel(), 1), edge_index, None, owner, graphs=len(slots))
    nothing = torch.zeros(label_log_prob.shape[:2], dtype=torch.long)
    label = torch.arange(2, label_log_prob.size(2))
    vocabulary = Vocabulary(95 + label, label)
    return PredictedGraph(label_log_prob, next_log_prob, graph, label_log_prob, nothing, vocabulary, checked=False)


def make_targets(rows, edges=None):
    """Target graphs from the labels of their nodes; chains, or with the `edges` given for each."""
    parts = [chain(len(row)) for row in rows] if edges is None else edges
    return Batch.from_data_list(
        [
            Data(x=torch.tensor(row, dtype=torch.long) + 95, edge_index=part, num_nodes=len(row))
            for row, part in zip(rows, parts, strict=True)
        ]
    )


@pytest.fixture(scope="session")
def predict():
    return make_predicted


@pytest.fixture(scope="session")
def wanted():
    return make_targets
