"""Every registered objective, on predicted chains and DAGs, as a function of what is predicted."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn.candidates import EDGE_KINDS, CandidateEdges
from grapheme_nn.check.subjects.subject import Case, Subject, doubles
from grapheme_nn.morph import Morph
from grapheme_nn.nn.pointer import band_log_softmax
from grapheme_nn.objective.edges import value_at
from grapheme_nn.predicted import PredictedGraph, Targets, Vocabulary
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
    return PredictedGraph(label_log_prob, next_log_prob, graph, label_log_prob, unit, vocabulary, checked=False)


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


def _edge_case(name: str, kind: str) -> Case:
    """Of predicted edges the plan is held fixed, so that differences are taken of the value at the plan found first."""
    objective, count = OBJECTIVES[name](), 3 if kind == "operands" else 2
    there = (BATCH[:, None] == BATCH) & ~torch.eye(10, dtype=torch.bool)
    first, second = there.nonzero().unbind(1)
    x, edges = TARGETS["graphs"]
    target = Batch.from_data_list(
        [
            Data(x=torch.tensor(x), edge_index=torch.tensor(edges), edge_type=torch.tensor([5, 5, 7, 5])),
            Data(x=torch.tensor([98, 100]), edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([7])),
        ]
    )
    none = {"operands": 3, "consumer": 1}.get(kind, 0)
    inputs = {"label_score": doubles(2, 6, 5), "edge_score": doubles(first.numel(), count)}
    if none:
        inputs["none_score"] = doubles(10, none)

    def predict(label_score: Tensor, edge_score: Tensor, none_score: Tensor | None = None) -> PredictedGraph:
        absent = edge_score[:0] if none_score is None else none_score
        candidates = CandidateEdges.of(kind, first, second, edge_score, absent, torch.tensor([5, 7]))
        return replace(predicted_graph(label_score.log_softmax(2), None, "graphs"), candidates=candidates)

    plan = objective(predict(**inputs), target).plan

    def at_plan(**tensors: Tensor) -> Tensor:
        return value_at(plan, predict(**tensors), Targets.of(target), 20.0)

    return Case(lambda **tensors: objective(predict(**tensors), target).value, inputs, at_plan)


def objectives() -> tuple[Subject, ...]:
    """All that are registered now."""
    with_edges = tuple(
        Subject("objectives", f"{name}, {kind} edges", partial(_edge_case, name, kind))
        for name in OBJECTIVES
        if OBJECTIVES[name].compares_edges
        for kind in EDGE_KINDS
    )
    every = tuple(
        Subject("objectives", f"{name}, {kind}", partial(_case, name, kind)) for name in OBJECTIVES for kind in SLOTS
    )
    return (
        *every,
        *with_edges,
        Subject("objectives", "path, logarithms", partial(_case, "path", "chains", least=-300.0)),
    )
