"""Every registered objective, on predicted chains and DAGs, as a function of what is predicted."""

from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn.check.subjects.subject import Case, Subject, doubles
from grapheme_nn.morph import Morph
from grapheme_nn.nn.pointer import band_log_softmax
from grapheme_nn.predicted import PredictedGraph, Vocabulary
from grapheme_nn.registry import OBJECTIVES

UNITS = torch.tensor([97, 98, 99])  # a, b and c have labels 2, 3 and 4
REACH = 3
# Six slots and four, as chains and as DAGs; targets of four nodes and of two, one of which can only be copied.
SLOTS = {
    "chains": torch.tensor([[0, 1, 2, 3, 4, 6, 7, 8], [1, 2, 3, 4, 5, 7, 8, 9]]),
    "graphs": torch.tensor([[0, 0, 1, 2, 3, 6, 6, 7, 8], [1, 2, 3, 4, 5, 7, 8, 9, 9]]),
}
BATCH = torch.tensor([0] * 6 + [1] * 4)
TARGETS = {
    "chains": ([97, 99, 99, 98], [[0, 1, 2], [1, 2, 3]]),
    "graphs": ([97, 99, 99, 98], [[0, 0, 1, 2], [1, 2, 3, 3]]),
}


def predicted_graph(label_log_prob: Tensor, next_log_prob: Tensor | None, kind: str) -> PredictedGraph:
    """Predicted graphs with these log-probabilities; each slot would copy `d`, which has no label, or `a`."""
    graph = Morph.start(label_log_prob.new_zeros(10, 1), SLOTS[kind], None, BATCH)
    unit = torch.tensor([[100, 97] * 3, [100, 97] * 3])
    vocabulary = Vocabulary(UNITS, torch.tensor([2, 3, 4]))
    return PredictedGraph(label_log_prob, next_log_prob, graph, label_log_prob, unit, vocabulary)


def _case(name: str, kind: str, least: float = 0.0) -> Case:
    """`least` is added to all log-probabilities of labels."""
    objective = OBJECTIVES[name]()
    x, edges = TARGETS[kind]
    target = Batch.from_data_list(
        [
            Data(x=torch.tensor(x), edge_index=torch.tensor(edges)),
            Data(x=torch.tensor([98, 100]), edge_index=torch.tensor([[0], [1]])),
        ]
    )
    inputs = {"label_score": doubles(2, 6, 5)}
    if objective.predicts_next:
        inputs["next_score"] = doubles(2, 7, 1 + REACH)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])

    def fn(label_score: Tensor, next_score: Tensor | None = None) -> Tensor:
        following = None if next_score is None else band_log_softmax(next_score, mask)
        value: Tensor = objective(predicted_graph(label_score.log_softmax(2) + least, following, kind), target).value
        return value

    return Case(fn, inputs)


def objectives() -> tuple[Subject, ...]:
    """All that are registered now."""
    every = tuple(
        Subject("objectives", f"{name}, {kind}", partial(_case, name, kind)) for name in OBJECTIVES for kind in SLOTS
    )
    return (*every, Subject("objectives", "path, logarithms", partial(_case, "path", "chains", least=-300.0)))
