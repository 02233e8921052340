"""The network: a chain of morphs from graphs to predicted graphs, and from texts to texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from math import exp, inf
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from grapheme_nn.config import ModelConfig
from grapheme_nn.graph import Integers, chains, identities, join_units, name_identities, units_of
from grapheme_nn.model_folder import ModelError, read_folder, write_folder
from grapheme_nn.morph.base import Morph
from grapheme_nn.nn.encoder import Encoder
from grapheme_nn.nn.pointer import NextPointer
from grapheme_nn.nn.relabel import Relabel
from grapheme_nn.objective import Decoded, Objective
from grapheme_nn.predicted import COPY, PredictedGraph
from grapheme_nn.registry import MORPHS, OBJECTIVES

# Attention looks from every node at every other: long texts run in smaller batches, so that memory suffices.
MOST_LOOKS = 1 << 24


class GraphTransformNet(nn.Module):
    """Turns graphs into graphs: an encoder, and a chain of morphs whose last one labels the slots.

        batch -> encoder -> morphs (`config.morphs`: merge, lift, split, ...) -> relabel [-> next] -> PredictedGraph

    The network *is* that chain: called one after the other by hand, its parts give what the network gives, and
    `history` of the result is the product of their assignments. Where the objective asks for it, `next` predicts which
    slot follows which.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.objective: Objective = OBJECTIVES[config.loss]()
        self.encoder = Encoder(config)
        self.morphs = nn.ModuleList(MORPHS[name](config) for name in config.morphs)
        self.relabel = Relabel(config, has_void=self.objective.has_void)
        self.next = NextPointer(config.width, config.reach) if self.objective.predicts_next else None

    def forward(self, batch: Data) -> PredictedGraph:
        """The predicted graphs of a batch of DAGs with `x` int64 [n]: what each node is."""
        graph: Morph = self.encoder(batch)
        for morph in self.morphs:
            graph = morph(graph)
        predicted: PredictedGraph = self.relabel(graph)
        if self.next is not None:
            predicted = replace(predicted, next_log_prob=self.next(predicted.x, predicted.mask))
        return predicted

    def decode(self, predicted: PredictedGraph) -> Batch:
        """The hard graphs that predicted ones mean: a PyG batch with `x` int64 and `edge_index`."""
        return self.objective.decode(predicted).as_data(predicted)

    @overload
    def transform(
        self,
        texts: Sequence[str],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
        return_scores: Literal[False] = False,
    ) -> list[str]: ...

    @overload
    def transform(
        self,
        texts: Sequence[str],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
        return_scores: Literal[True],
    ) -> tuple[list[str], list[float]]: ...

    def transform(
        self,
        texts: Sequence[str],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
        return_scores: bool = False,
    ) -> list[str] | tuple[list[str], list[float]]:
        """What each text becomes; with `return_scores` also how sure that is, in (0, 1].

        The score is exp(-value) of the objective: of all but `structural`, the probability of the output. Texts of
        similar length run together, `batch_size` at a time; the results do not depend on it.
        """
        self._check(texts, features)
        outputs, scores = [""] * len(texts), [1.0] * len(texts)
        for rows, predicted, spelled in self._predictions(texts, features, batch_size):
            for row, text in zip(rows, spelled, strict=True):
                outputs[row] = text
            if return_scores:
                for row, value in zip(rows, self._values(predicted, spelled), strict=True):
                    scores[row] = min(max(exp(-value), 1e-30), 1.0)
        return (outputs, scores) if return_scores else outputs

    def log_probabilities(
        self,
        texts: Sequence[str],
        targets: Sequence[str],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
    ) -> list[float]:
        """The log-probability that each text becomes its target, -inf where it cannot."""
        return self.judge(texts, targets, features=features, batch_size=batch_size)[1]

    def judge(
        self,
        texts: Sequence[str],
        targets: Sequence[str],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
    ) -> tuple[list[str], list[float]]:
        """What each text becomes, and the log-probability that it becomes its target, -inf where it cannot."""
        self._check(texts, features)
        outputs = [""] * len(texts)
        judged = [0.0 if target == "" else -inf for target in targets]  # an empty text can only stay one
        for rows, predicted, spelled in self._predictions(texts, features, batch_size):
            for row, text, value in zip(
                rows, spelled, self._values(predicted, [targets[row] for row in rows]), strict=True
            ):
                outputs[row], judged[row] = text, -value
        return outputs, judged

    def save(self, folder: str | PathLike[str], *, card: str = "", training: Mapping[str, Any] | None = None) -> None:
        """Write the model folder: weights, configuration (with that of the training, where given) and card."""
        config = {"model": asdict(self.config)} | ({} if training is None else {"training": dict(training)})
        write_folder(folder, self.state_dict(), config, card)

    @classmethod
    def load(cls, folder: str | PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The model in a folder. Nothing in the folder is executed; what does not fit is a `ModelError`."""
        weights, config = read_folder(folder)
        unknown = [key for key in config if key not in ("model", "training")]
        unknown += [key for key in config["model"] if key not in {field.name for field in fields(ModelConfig)}]
        if unknown:
            raise ModelError(f"the configuration of {folder} has the unknown key {unknown[0]!r}")
        try:
            values: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in config["model"].items()
            }
            model = cls(ModelConfig(**values))
        except (TypeError, ValueError) as error:
            raise ModelError(f"the configuration of {folder} is not that of a model: {error}") from None
        wanted = model.state_dict()
        for name in sorted(wanted.keys() | weights.keys()):
            if name not in weights or name not in wanted or weights[name].shape != wanted[name].shape:
                sizes = [list(part[name].shape) if name in part else "missing" for part in (weights, wanted)]
                raise ModelError(
                    f"the weights in {folder} do not fit its configuration: {name} is {sizes[0]}, expected {sizes[1]}"
                )
        model.load_state_dict(weights)
        return model.to(device).eval()

    def _check(self, texts: Sequence[str], features: Sequence[Sequence[str]] | None) -> None:
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, but got one str: put it in a list")
        if self.config.features and features is None and texts:
            some = ", ".join(self.config.features[:3])
            raise ModelError(f"this model was trained with features (such as {some}): give features for every text")
        if features is not None and len(features) != len(texts):
            raise ModelError(f"there are {len(texts)} texts, but features for {len(features)}")

    def _predictions(
        self, texts: Sequence[str], features: Sequence[Sequence[str]] | None, batch_size: int
    ) -> Iterator[tuple[list[int], PredictedGraph, list[str]]]:
        """The texts that are not empty, in batches of similar length: rows, predicted graphs, and what they spell.

        The network is in evaluation mode meanwhile.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but is {batch_size}")
        order = sorted((row for row, text in enumerate(texts) if text), key=lambda row: len(texts[row]))
        training, device = self.training, self.relabel.label.weight.device
        if training:
            self.eval()
        try:
            with torch.no_grad():
                start = 0
                while start < len(order):
                    rows = order[start : start + batch_size]
                    fitting = sum(number * len(texts[row]) ** 2 <= MOST_LOOKS for number, row in enumerate(rows, 1))
                    rows = rows[: max(1, fitting)]
                    start += len(rows)
                    named: list[Integers] | None = None
                    if features is not None:
                        named = [np.array(name_identities(features[row]), dtype=np.int64) for row in rows]
                    units = identities([texts[row] for row in rows], self.config.input_unit)
                    batch = chains(units, named)
                    predicted: PredictedGraph = self(batch if device.type == "cpu" else batch.to(device))
                    decoded = self.objective.decode(predicted)
                    yield rows, predicted, self._texts(predicted, decoded, batch, [texts[row] for row in rows])
        finally:
            if training:
                self.train()

    def _texts(self, predicted: PredictedGraph, decoded: Decoded, batch: Data, texts: Sequence[str]) -> list[str]:
        """What decoded graphs of texts spell."""
        names, spelled = ("", "", *self.config.labels), []
        for number, (text, row) in enumerate(zip(texts, decoded.label.tolist(), strict=True)):
            units = [names[label] for label in row if label]
            if COPY in row:
                parents, first = units_of(text, self.config.input_unit), int(batch.ptr[number])
                nodes = predicted.node[number, decoded.slot[number]].tolist()
                for at, label in enumerate(row):
                    if label == COPY:
                        units[at] = parents[nodes[at] - first]
            spelled.append(join_units(units, self.config.target_unit))
        return spelled

    def _values(self, predicted: PredictedGraph, targets: Sequence[str]) -> list[float]:
        """The objective's value of each target."""
        units = chains(identities(targets, self.config.target_unit)).to(predicted.unit.device)
        values: list[float] = self.objective(predicted, units).value.tolist()
        return values


def transform_ensemble(
    models: Sequence[GraphTransformNet],
    texts: Sequence[str],
    *,
    features: Sequence[Sequence[str]] | None = None,
    batch_size: int = 256,
) -> tuple[list[str], list[float]]:
    """What several models make of each text together, and the probability that they give to it.

    Each model proposes a text, all models judge all proposals, and the one with the highest mean log-probability wins.
    """
    if not models:
        raise ValueError("an ensemble needs at least one model")
    proposals = [model.transform(texts, features=features, batch_size=batch_size) for model in models]
    pairs = [(row, text) for row in range(len(texts)) for text in dict.fromkeys(p[row] for p in proposals)]
    inputs, outputs = [texts[row] for row, _ in pairs], [text for _, text in pairs]
    named = None if features is None else [features[row] for row, _ in pairs]
    judged = [m.log_probabilities(inputs, outputs, features=named, batch_size=batch_size) for m in models]
    best: list[tuple[float, str]] = [(-inf, "")] * len(texts)
    for (row, text), *values in zip(pairs, *judged, strict=True):
        mean = max(sum(values) / len(models), -1e3)  # one model that cannot spell it is no reason for having nothing
        if mean > best[row][0]:
            best[row] = (mean, text)
    return [text for _, text in best], [min(max(exp(mean), 1e-30), 1.0) for mean, _ in best]
