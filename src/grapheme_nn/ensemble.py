"""Ensembles: several models vote on what each input becomes."""

from collections.abc import Sequence
from math import inf
from typing import Any

from grapheme_nn.calibration import Calibration
from grapheme_nn.graph_data import as_side
from grapheme_nn.isomorphism import is_same
from grapheme_nn.model import GraphTransformNet


def transform_ensemble(
    models: Sequence[GraphTransformNet],
    inputs: Sequence[Any],
    *,
    features: Sequence[Sequence[str]] | None = None,
    batch_size: int = 256,
) -> tuple[list[Any], list[float]]:
    """What several models make of each input together, and the probability that they give to it.

    Each model proposes an output, all models judge all proposals, and the one with the highest mean log-probability
    wins.
    """
    if not models:
        raise ValueError("an ensemble needs at least one model")
    proposals = [model.transform(inputs, features=features, batch_size=batch_size) for model in models]
    pairs: list[tuple[int, Any]] = []
    for row in range(len(inputs)):
        different: list[Any] = []
        for proposal in proposals:
            if not any(is_same(as_side(proposal[row])[0], as_side(other)[0]) for other in different):
                different.append(proposal[row])
        pairs += [(row, output) for output in different]
    asked, outputs = [inputs[row] for row, _ in pairs], [output for _, output in pairs]
    named = None if features is None else [features[row] for row, _ in pairs]
    judged = [m.log_probabilities(asked, outputs, features=named, batch_size=batch_size) for m in models]
    both = zip(*(model.calibration for model in models), strict=True)
    calibration = Calibration(*(sum(values) / len(models) for values in both))
    best: list[tuple[float, Any]] = [(-inf, proposal) for proposal in proposals[0]]
    for (row, output), *values in zip(pairs, *judged, strict=True):
        mean = max(sum(values) / len(models), -1e3)  # one model that cannot make it is no reason for having nothing
        if mean > best[row][0]:
            best[row] = (mean, output)
    outputs = [models[0].as_targets([output])[0] if isinstance(output, str) else output for _, output in best]
    return outputs, [calibration.score(mean) for mean, _ in best]
