"""Ensembles: several models vote on what each input becomes."""

from collections.abc import Mapping, Sequence
from math import exp, inf, log
from os import PathLike
from pathlib import Path
from typing import Any, Self

import torch

from grapheme_nn.calibration import Calibration
from grapheme_nn.data import Graph
from grapheme_nn.graph_data import as_side
from grapheme_nn.isomorphism import is_same
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.model_folder import ModelError, read_config


class Ensemble:
    """Several models that vote.

    Each model proposes an output, all models judge all proposals, and the one with the highest mean probability wins. A
    score is made of that mean by `calibration`, or without one by the mean of the models' own.
    """

    def __init__(self, models: Sequence[GraphTransformNet], calibration: Calibration | None = None) -> None:
        if isinstance(models, Ensemble) or not all(isinstance(model, GraphTransformNet) for model in models):
            raise TypeError("an ensemble is made of a list of GraphTransformNet: of another one, of its models")
        if not models:
            raise ValueError("an ensemble needs at least one model")
        check_units({f"model {number}": model for number, model in enumerate(models, 1)})
        self.models = tuple(models)
        both = zip(*(model.calibration for model in models), strict=True)
        self.calibration = calibration or Calibration(*(sum(values) / len(models) for values in both))

    def transform(
        self,
        inputs: Sequence[Any],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
        return_scores: bool = False,
    ) -> Any:
        """What each input becomes; with `return_scores` also how sure that is, as `GraphTransformNet.transform`."""
        proposals = [model.transform(inputs, features=features, batch_size=batch_size) for model in self.models]
        pairs: list[tuple[int, Any]] = []  # what is to be judged
        for row, proposed in enumerate(zip(*proposals, strict=True)):
            different: list[Any] = []
            for output in proposed:
                if not any(is_same(as_side(output)[0], as_side(other)[0]) for other in different):
                    different.append(output)
            if return_scores or len(different) > 1:
                pairs += [(row, output) for output in different]
        best: list[tuple[float, Any]] = [(-inf, proposal) for proposal in proposals[0]]
        for (row, output), mean in zip(pairs, self._judged(inputs, features, pairs, batch_size), strict=True):
            if mean > best[row][0]:
                best[row] = (mean, output)
        outputs = [self.as_targets([output])[0] if isinstance(output, str) else output for _, output in best]
        return (outputs, [self.calibration.score(mean) for mean, _ in best]) if return_scores else outputs

    def candidates(
        self,
        inputs: Sequence[Any],
        *,
        best: int = 5,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
    ) -> list[list[tuple[str, float]]]:
        """The outputs that the models find most probable together, as `GraphTransformNet.candidates`.

        Each model proposes its `best`, and all judge all proposals.
        """
        proposals = (
            model.candidates(inputs, best=best, features=features, batch_size=batch_size) for model in self.models
        )
        different = [
            dict.fromkeys(text for own in proposed for text, _ in own) for proposed in zip(*proposals, strict=True)
        ]
        pairs = [(row, text) for row, texts in enumerate(different) for text in texts]
        found: list[list[tuple[float, str]]] = [[] for _ in inputs]
        for (row, text), mean in zip(pairs, self._judged(inputs, features, pairs, batch_size), strict=True):
            found[row].append((mean, text))
        ordered = [sorted(own, key=lambda one: -one[0])[:best] for own in found]
        scores = [self.calibration.scores([mean for mean, _ in own]) for own in ordered]
        return [
            [(text, score) for (_, text), score in zip(*both, strict=True)]
            for both in zip(ordered, scores, strict=True)
        ]

    def _judged(
        self,
        inputs: Sequence[Any],
        features: Sequence[Sequence[str]] | None,
        pairs: Sequence[tuple[int, Any]],
        batch_size: int,
    ) -> list[float]:
        """The logarithm of the mean probability of each pair of an input's row and an output."""
        asked, outputs = [inputs[row] for row, _ in pairs], [output for _, output in pairs]
        named = None if features is None else [features[row] for row, _ in pairs]
        judged = (m.log_probabilities(asked, outputs, features=named, batch_size=batch_size) for m in self.models)
        return [_mean_probability(values) for values in zip(*judged, strict=True)]

    def unlike_training(
        self, inputs: Sequence[Any], *, features: Sequence[Sequence[str]] | None = None
    ) -> list[str | None]:
        """What about each input the models have not met in training; where they differ in that, of which one."""
        found = (
            model.unlike_training(inputs, features=features if model.config.features else None) for model in self.models
        )
        names = [f"model {number}" for number, _ in enumerate(self.models, 1)]
        return [joined(names, sentences) for sentences in zip(*found, strict=True)]

    def as_targets(self, sides: Sequence[str | Graph]) -> list[str | Graph]:
        """Texts or graphs in the normalization form of the outputs, to be compared with those."""
        return self.models[0].as_targets(sides)

    @classmethod
    def load(cls, folder: str | PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The ensemble in a folder. Nothing in the folder is executed; what does not fit is a `ModelError`."""
        path = Path(folder)
        config = read_config(path)
        if "members" not in config:
            raise ModelError(f"{path} holds one model, not several that vote: load it by grapheme_nn.load")
        models = [GraphTransformNet.load(path / member, device=device) for member in config["members"]]
        for member, weights in zip(config["members"], config["weights"], strict=True):
            if read_config(path / member).get("weights") != weights:
                raise ModelError(
                    f"{path / member} is not the member that the ensemble was made of: copy the whole folder"
                )
        return cls(models, Calibration(config["score_slope"], config["score_offset"]))


def load(folder: str | PathLike[str], device: torch.device | str = "cpu") -> GraphTransformNet | Ensemble:
    """What a folder holds: a model, or an ensemble of several. Both have `transform` and `unlike_training`."""
    kind = Ensemble if "members" in read_config(Path(folder)) else GraphTransformNet
    return kind.load(folder, device=device)


def _mean_probability(values: Sequence[float]) -> float:
    """The logarithm of the mean of probabilities, whose logarithms are given."""
    highest = max(*values, -1e3)  # what no model can make is no reason for having nothing
    return highest + log(sum(exp(value - highest) for value in values) / len(values) or 1e-300)


def check_units(models: Mapping[str, GraphTransformNet]) -> None:
    """A `ModelError` where models, by name, cannot vote: one cannot judge what another one spells in other units."""
    (first, unit), *others = ((name, model.config.target_unit) for name, model in models.items())
    for name, other in others:
        if other != unit:
            raise ModelError(
                f"{name} spells in units of {other}, but {first} in units of {unit}: "
                "only models with the same target unit can vote"
            )


def joined(names: Sequence[str], sentences: Sequence[str | None]) -> str | None:
    """What several say: one sentence where they agree, else each with its name."""
    if len(set(sentences)) == 1:
        return sentences[0]
    return "; ".join(f"{name}: {sentence}" for name, sentence in zip(names, sentences, strict=True) if sentence)
