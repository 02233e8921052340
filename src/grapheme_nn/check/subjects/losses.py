"""Gradient-check cases of losses: Sinkhorn transport, the structural loss, and the losses between slots and texts."""

from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn.check.subjects.subject import Case, Subject, doubles
from grapheme_nn.loss import StructuralLoss, sinkhorn

SOURCES = torch.tensor([[True, True, True], [True, True, False]])
TARGETS = torch.tensor([[True, True, True, True], [True, True, False, False]])
LABELS, CHANNELS = 4, 2
CHAIN_PAIR = ([[0, 1], [1, 2]], [[0, 1, 2], [1, 2, 3]])  # edges of a predicted graph, and of its target
TYPED_PAIR = torch.tensor([1, 2, 1, 2, 0]), torch.tensor([1, 1, 2, 2, 0])  # of the edges of DAG_PAIR, and one more
DAG_PAIR = ([[0, 0, 1, 2], [1, 2, 3, 3]], [[0, 1, 0, 3], [1, 2, 3, 2]])


def _sinkhorn(*, masked: bool = False, void: bool = False, temperature: float = 0.5) -> Case:
    masks = (SOURCES, TARGETS) if masked else (None, None)
    cost = torch.rand(2, 3, 4, dtype=torch.float64)
    cost[0, 0, 0], cost[1, 1, 1] = 2.0, 0.0  # at a temperature of 0.02 they range over 100 of it: logarithms
    inputs = {"cost": cost.requires_grad_()}
    if void:
        inputs |= {"deletion": doubles(2, 3), "insertion": doubles(2, 4)}

    def fn(cost: Tensor, **voids: Tensor) -> Tensor:
        return sinkhorn(cost, *masks, temperature=temperature, void=tuple(voids.values()) if void else None)  # type: ignore[arg-type]

    return Case(fn, inputs)


def _structural(
    term: str,
    edges: tuple[list[list[int]], list[list[int]]],
    *names: str,
    hard: bool = False,
    active: bool = True,
    typed: bool = False,
    temperature: float = 0.3,
) -> Case:
    """A term of the loss between two graphs, and between two smaller ones, in the inputs named.

    The types of predicted nodes are probabilities or, where they are `hard`, known; `target` is what the target's nodes
    are activated by.
    """
    small = torch.tensor([[0], [1]])
    predicted_edges, target_edges = (torch.tensor(side) for side in edges)
    n, m, e = int(predicted_edges.max()) + 1, int(target_edges.max()) + 1, predicted_edges.size(1)
    inputs: dict[str, Tensor] = {
        "activation": doubles(n + 2, CHANNELS),
        "label_log_prob": torch.randn(n + 2, LABELS, dtype=torch.float64).log_softmax(1).requires_grad_(),
        "edge_weight": (torch.rand(e + 1, dtype=torch.float64) + 0.3).requires_grad_(),
        "existence": (0.5 + 0.4 * torch.rand(n + 2, dtype=torch.float64)).requires_grad_(),
        "target": doubles(m + 2, CHANNELS),
    }
    target = Batch.from_data_list(
        [
            Data(
                **{"x" if hard else "label": torch.randint(0, LABELS, (size,))},
                edge_index=own,
                num_nodes=size,
            )
            for size, own in ((m, target_edges), (2, small))
        ]
    )
    loss = StructuralLoss(temperature=temperature, context=0.1)
    both = torch.cat([predicted_edges, small + n], dim=1)
    fixed = {name: value.detach() for name, value in inputs.items() if name not in names}

    if hard:
        fixed["x"] = fixed.pop("label_log_prob").argmax(1)

    if not active:
        del fixed["activation"], fixed["target"]

    def fn(**given: Tensor) -> Tensor:
        parts = fixed | given
        wanted = target.clone()
        if active:
            wanted.activation = parts.pop("target")
        predicted = Batch(edge_index=both, ptr=torch.tensor([0, n, n + 2]), **parts)
        if typed:
            predicted.edge_type, wanted.edge_type = TYPED_PAIR
        value: Tensor = getattr(loss(predicted, wanted), term)
        return value

    return Case(fn, {name: inputs[name] for name in names})


def _terms() -> tuple[Subject, ...]:
    every = ("activation", "label_log_prob", "edge_weight", "existence")
    by_edges = ("edge_weight", "existence")  # how dense a graph is does not depend on what its nodes are
    known = ("activation", "edge_weight", "existence", "target")
    total = partial(_structural, "total")
    kinds = (("chains", CHAIN_PAIR), ("graphs", DAG_PAIR))
    terms = (("node", every), ("edge", every), ("clique", by_edges), ("embedding", every), ("total", every))
    return (
        *(
            Subject("StructuralLoss", f"{term}, {kind}", partial(_structural, term, edges, *names))
            for kind, edges in kinds
            for term, names in terms
        ),
        *(
            Subject("StructuralLoss", f"total, {kind}, hard", partial(total, edges, *known, hard=True))
            for kind, edges in kinds
        ),
        Subject("StructuralLoss", "edge, typed", partial(_structural, "edge", DAG_PAIR, *every, typed=True)),
        Subject("StructuralLoss", "total, typed", partial(total, DAG_PAIR, *every, typed=True)),
        Subject("StructuralLoss", "total, inactive", partial(total, DAG_PAIR, *every[1:], active=False)),
        Subject("StructuralLoss", "total, logarithms", partial(total, CHAIN_PAIR, *every, temperature=0.04)),
    )


LOSSES = (
    Subject("sinkhorn", "plain", _sinkhorn),
    Subject("sinkhorn", "with void", lambda: _sinkhorn(void=True)),
    Subject("sinkhorn", "masked", lambda: _sinkhorn(masked=True)),
    Subject("sinkhorn", "masked, with void", lambda: _sinkhorn(masked=True, void=True)),
    Subject("sinkhorn", "logarithms", lambda: _sinkhorn(temperature=0.02)),
    *_terms(),
)
