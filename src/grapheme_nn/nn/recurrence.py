"""Bidirectional LSTM over DAGs: a state is carried through a graph in topological order, and back."""

import torch
from torch import Tensor, nn

from grapheme_nn.nn.structure import Structure


class Recurrence(nn.Module):
    """A long short-term memory in topological order, and another one in the opposite order.

    A node's state comes from its own feature and the mean of the states of its predecessors (successors, in the
    opposite order). On a chain this is a bidirectional LSTM; other DAGs are walked level by level.

    channels: of the input; hidden: of each direction. x is [B, n, channels], the result [B, n, 2 hidden].
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.forward_lstm = nn.LSTM(channels, hidden, batch_first=True)
        self.backward_lstm = nn.LSTM(channels, hidden, batch_first=True)

    def forward(self, x: Tensor, structure: Structure) -> Tensor:
        if structure.edge_index is not None:
            node = structure.padding.flat(x)
            ahead, back = structure.depth
            states = [
                _level_by_level(self.forward_lstm, node, structure, structure.edge_index, ahead),
                _level_by_level(self.backward_lstm, node, structure, structure.edge_index.flip(0), back),
            ]
            return structure.padding.dense(torch.cat(states, 1))
        # Padding comes after all nodes in both orders, so no state of a node has seen it.
        there = _states(self.forward_lstm, x)
        reverse = structure.reversed  # [B, n, 1]
        back = _states(self.backward_lstm, x.gather(1, reverse.expand_as(x)))
        return torch.cat([there, back.gather(1, reverse.expand_as(back))], 2)


def _states(lstm: nn.LSTM, x: Tensor) -> Tensor:
    """What `lstm(x)[0]` is, without the checks of its module, which take as long as a short word."""
    start = x.new_zeros(1, x.size(0), lstm.hidden_size)
    weights: list[Tensor] = [*lstm.all_weights[0]]
    learns = torch.is_grad_enabled()  # what a GPU must know beforehand
    states: Tensor = torch.lstm(x, [start, start], weights, True, 1, 0.0, learns, False, True)[0]
    return states


def _level_by_level(lstm: nn.LSTM, node: Tensor, structure: Structure, edge_index: Tensor, level: Tensor) -> Tensor:
    """The states of all nodes [nodes, hidden]: those of level 0 first, then of the nodes that wait for these alone."""
    source, target = edge_index
    weights = lstm.all_weights[0]
    state = node.new_zeros(node.size(0), 2, lstm.hidden_size)
    edge_level = level[target]
    for depth in range(int(level.max()) + 1 if level.numel() else 0):
        here = (level == depth).nonzero()[:, 0]
        arriving = (edge_level == depth).nonzero()[:, 0]
        before = structure.weighted_mean(state[source[arriving]].flatten(1), target[arriving], arriving)[here]
        hidden, memory = before.view(-1, 2, lstm.hidden_size).unbind(1)
        hidden, memory = torch.lstm_cell(node[here], [hidden, memory], *weights)
        state = state.index_copy(0, here, torch.stack([hidden, memory], 1))
    return state[:, 0]
