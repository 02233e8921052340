"""Bidirectional LSTM over DAGs: a state is carried through a graph in topological order, and back."""

import torch
from torch import Tensor, nn

from grapheme_nn.nn.structure import EdgeTypes, Level, Structure


class Recurrence(nn.Module):
    """A long short-term memory in topological order, and another one in the opposite order.

    A node's state comes from its own feature and the mean of the states of its predecessors (successors, in the
    opposite order). On a chain this is a bidirectional LSTM; other DAGs are walked level by level.

    channels: of the input; hidden: of each direction. x is [B, n, channels], the result [B, n, 2 hidden].
    """

    def __init__(self, channels: int, hidden: int, *, types: int = 0) -> None:
        super().__init__()
        self.typed = EdgeTypes(2 * hidden, types) if types else None
        self.forward_lstm = nn.LSTM(channels, hidden, batch_first=True)
        self.backward_lstm = nn.LSTM(channels, hidden, batch_first=True)

    def forward(self, x: Tensor, structure: Structure) -> Tensor:
        if structure.edge_index is not None:
            node = structure.padding.flat(x)
            ahead, back = structure.sweeps
            states = [
                self._sweep(self.forward_lstm, node, structure, ahead, 0),
                self._sweep(self.backward_lstm, node, structure, back, 1),
            ]
            return structure.padding.dense(torch.cat(states, 1))
        # Padding comes after all nodes in both orders, so no state of a node has seen it.
        there = _states(self.forward_lstm, x)
        reverse = structure.reversed  # [B, n, 1]
        turned = _states(self.backward_lstm, x.gather(1, reverse.expand_as(x)))
        return torch.cat([there, turned.gather(1, reverse.expand_as(turned))], 2)

    def _sweep(self, lstm: nn.LSTM, node: Tensor, structure: Structure, levels: list[Level], direction: int) -> Tensor:
        """The states of all nodes [nodes, hidden]: those of level 0 first, then of the nodes that wait for these."""
        weights = lstm.all_weights[0]
        state = node.new_zeros(node.size(0), 2 * lstm.hidden_size)
        for level in levels:
            before = state[level.source]
            if self.typed is not None and structure.edge_type is not None:
                before = self.typed(before, structure.edge_type[level.edge], direction)
            before = structure.weighted_mean(before, level.row, level.edge, level.node.numel())
            hidden, memory = before.chunk(2, 1)
            after = torch.lstm_cell(node[level.node], [hidden, memory], *weights)
            # In place: who read the state before needs to know where, not what it was.
            state = state.index_copy_(0, level.node, torch.cat(after, 1))
        return state[:, : lstm.hidden_size]


def _states(lstm: nn.LSTM, x: Tensor) -> Tensor:
    """What `lstm(x)[0]` is, without the checks of its module, which take as long as a short word."""
    start = x.new_zeros(1, x.size(0), lstm.hidden_size)
    weights: list[Tensor] = [*lstm.all_weights[0]]
    learns = torch.is_grad_enabled()  # what a GPU must know beforehand
    states: Tensor = torch.lstm(x, [start, start], weights, True, 1, 0.0, learns, False, True)[0]
    return states
