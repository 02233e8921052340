"""The room of the network: a graph comes in, its nodes are split and labelled, and another graph comes out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from math import exp, inf
from os import PathLike
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from grapheme_nn.folder import ModelError, read_folder, write_folder
from grapheme_nn.graph import identities
from grapheme_nn.inputs import Inputs, batch_to_inputs, join_units, pad, texts_to_inputs, units_of
from grapheme_nn.loss.edges import edge_log_softmax, edge_score
from grapheme_nn.morph.split import Split
from grapheme_nn.nn.attention import Attention
from grapheme_nn.nn.coarse import Coarse
from grapheme_nn.nn.embedding import HashEmbedding
from grapheme_nn.nn.layer import Layer
from grapheme_nn.settings import LOSSES, LossName, ModelConfig
from grapheme_nn.spell import COPY, Prediction, Targets, read, target_value

__all__ = ["LOSSES", "GraphTransformNet", "LossName", "ModelConfig", "ModelError", "transform_ensemble"]

# Attention looks from every node at every other: long texts run in smaller batches, so that memory suffices.
MOST_LOOKS = 1 << 24


class GraphTransformNet(nn.Module):
    """Turns graphs into graphs: every node becomes r slots, and every slot a label, the parent's own, or nothing.

        units -> embedding -> layers of recurrence, messages and attention -> [merge, coarse layer, lift]
              -> split into r slots, which look back at all nodes -> for each slot void, copy, or one of the labels

    With the loss `path` the edges between slots are predicted too, and what is spelled is a walk through them.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.embedding = HashEmbedding(width, buckets=config.buckets, hashes=config.hashes)
        if config.features:
            self.feature_embedding = HashEmbedding(width, buckets=config.buckets, hashes=config.hashes)
            self.condition = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
            )
        make = (width, config.heads, config.hidden, config.dropout)
        self.layers = nn.ModuleList(Layer(*make) for _ in range(config.layers))
        self.coarse = Coarse(*make) if config.merge else None
        self.norm = nn.LayerNorm(width)
        self.split = Split(width, config.parts)
        if config.heads:
            self.slot_norm = nn.LayerNorm(width)
            self.look = Attention(width, config.heads)
        self.label = nn.Linear(width, 2 + len(config.labels))
        self.dropout = nn.Dropout(config.dropout)
        if config.loss == "path":
            self.begin = nn.Parameter(torch.randn(width) * 0.1)
            self.leave, self.arrive = nn.Linear(width, width // 2), nn.Linear(width, width // 2)
            self.end = nn.Linear(width, 1)
        known = torch.tensor([int(row[0]) if row.size else 0 for row in identities(config.labels, config.target_unit)])
        known, order = known.sort()
        self.register_buffer("known", known, persistent=False)
        self.register_buffer("known_label", order + 2, persistent=False)
        self.known: Tensor
        self.known_label: Tensor

    def forward(self, batch: Batch | Inputs) -> Prediction:
        """The predicted graphs of a batch of DAGs, and how they came about."""
        inputs = batch if isinstance(batch, Inputs) else batch_to_inputs(batch)
        parts, mask = self.config.parts, inputs.structure.mask
        parent = self.norm(self.encode(inputs))
        slot = self.split.children_of(parent).view(mask.size(0), -1, self.config.width).relu()
        if self.config.heads:  # text may change its order: what a slot spells can be far from its parent
            slot = slot + self.look(self.slot_norm(slot), parent, None if inputs.structure.full else mask)
        slot = self.dropout(slot)
        score = self.label(slot)
        slot_mask = mask.repeat_interleave(parts, 1)
        edges = None
        if self.config.loss == "path":
            # A walk goes round the slots it does not need, so none of them is void.
            score = torch.cat([torch.full_like(score[:, :, :1], -torch.inf), score[:, :, 1:]], 2)
            vertex = torch.cat([self.begin.expand(slot.size(0), 1, -1), slot], 1)
            edges = edge_score(self.leave(vertex), self.arrive(slot), self.end(vertex)[:, :, 0], self.config.reach)
            edges = edge_log_softmax(edges, slot_mask)
        unit = inputs.unit.repeat_interleave(parts, 1)
        return Prediction(score.log_softmax(2), edges, slot_mask, unit, self.labels_of(unit), inputs, parts)

    def encode(self, inputs: Inputs) -> Tensor:
        """What the network thinks of every node, [B, n, width]."""
        x: Tensor = self.embedding(inputs.unit)
        features = None
        if self.config.features:
            feature, there = inputs.feature, inputs.feature_mask
            if feature is None or there is None:  # as if each graph had none, which is a condition too
                feature, there = inputs.unit[:, :0], inputs.structure.mask[:, :0]
            named = self.feature_embedding(feature) * there[:, :, None]
            x = x + self.condition(named.sum(1))[:, None]
            features = (named, there)
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, inputs.structure, features)
        if self.coarse is not None:
            x = x + self.coarse(x, inputs.structure, features)
        return x

    def labels_of(self, unit: Tensor) -> Tensor:
        """The label of each unit, or `COPY` for one that has none and can only be copied. int64, the same shape."""
        if not self.known.numel():
            return torch.full_like(unit, COPY)
        place = torch.searchsorted(self.known, unit).clamp(max=self.known.numel() - 1)
        return torch.where(self.known[place] == unit, self.known_label[place], COPY)

    def loss(self, prediction: Prediction, targets: Targets) -> Tensor:
        """Minus the log-probability of each target, [B]: inf, without gradient, where the slots cannot spell it."""
        if not targets.unit.size(1):  # only empty texts: they need one column of padding
            nothing = targets.unit.new_zeros(targets.unit.size(0), 1)
            targets = Targets(nothing, nothing.bool())
        return target_value(self.config.loss, prediction, targets, self.labels_of(targets.unit))

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
        """What each text becomes; with `return_scores` also the probability, in (0, 1], that the network gives to it.

        Texts of similar length run together, `batch_size` at a time; the results do not depend on it.
        """
        self._check(texts, features)
        outputs, scores = [""] * len(texts), [1.0] * len(texts)
        for rows, inputs in self._batches(texts, features, batch_size):
            prediction = self(inputs)
            spelled = self._texts(prediction, [texts[row] for row in rows])
            for row, text in zip(rows, spelled, strict=True):
                outputs[row] = text
            if return_scores:
                for row, value in zip(rows, self._values(prediction, spelled), strict=True):
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
        self._check(texts, features)
        result = [0.0 if target == "" else -inf for target in targets]  # an empty text can only stay one
        for rows, inputs in self._batches(texts, features, batch_size):
            for row, value in zip(rows, self._values(self(inputs), [targets[row] for row in rows]), strict=True):
                result[row] = -value
        return result

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

    def _batches(
        self, texts: Sequence[str], features: Sequence[Sequence[str]] | None, batch_size: int
    ) -> Iterator[tuple[list[int], Inputs]]:
        """The texts that are not empty, in batches of similar length, while the network is in evaluation mode."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but is {batch_size}")
        order = sorted((row for row, text in enumerate(texts) if text), key=lambda row: len(texts[row]))
        training, device = self.training, self.label.weight.device
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
                    named = None if features is None else [features[row] for row in rows]
                    yield rows, texts_to_inputs([texts[row] for row in rows], named, self.config.input_unit).to(device)
        finally:
            if training:
                self.train()

    def _texts(self, prediction: Prediction, texts: Sequence[str]) -> list[str]:
        """What a prediction for texts spells."""
        labels, slots, _ = read(self.config.loss, prediction)
        names, spelled = ("", "", *self.config.labels), []
        for text, row, places in zip(texts, labels.tolist(), slots.tolist(), strict=True):
            units = [names[label] for label in row if label]
            if COPY in row:
                parents = units_of(text, self.config.input_unit)
                for at, label in enumerate(row):
                    if label == COPY:
                        units[at] = parents[places[at] // self.config.parts]
            spelled.append(join_units(units, self.config.target_unit))
        return spelled

    def _values(self, prediction: Prediction, targets: Sequence[str]) -> list[float]:
        """Minus the log-probability of each target."""
        units = Targets(*pad(identities(targets, self.config.target_unit))).to(prediction.unit.device)
        values: list[float] = self.loss(prediction, units).tolist()
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
