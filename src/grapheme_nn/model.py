"""The network: a chain of morphs from graphs to predicted graphs, and from texts to texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from grapheme_nn.calibration import Calibration
from grapheme_nn.config import ModelConfig
from grapheme_nn.dag import Integers
from grapheme_nn.data.graphs import Graph, cut, shown
from grapheme_nn.graph import name_identities, units_of
from grapheme_nn.graph_data import as_side, collate, encode
from grapheme_nn.model_folder import CARD, CONFIG, WEIGHTS, ModelError, read_card, read_folder, write_folder
from grapheme_nn.nn.edges import edge_predictor
from grapheme_nn.nn.encoder import Encoder
from grapheme_nn.nn.pointer import NextPointer
from grapheme_nn.nn.relabel import Relabel
from grapheme_nn.nn.stages import make_morphs, run_morphs
from grapheme_nn.normalization import normalized
from grapheme_nn.objective import Objective
from grapheme_nn.objective.search import best_outputs
from grapheme_nn.predicted import PredictedGraph
from grapheme_nn.readout import read_candidates, read_out
from grapheme_nn.registry import OBJECTIVES

# What a batch may hold of what grows fastest: pairs of nodes that attention looks at, or labels of slots. Long inputs
# run in smaller batches, so that memory suffices.
MOST_CELLS = 1 << 24
LONGEST = 100_000  # nodes of an input that attention looks at: time grows with their square
MOST_COMPARED = 1 << 25  # pairs of slots and target nodes, where a score needs them all at once


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
        self.morphs = make_morphs(config)
        self.relabel = Relabel(config, has_void=self.objective.has_void)
        self.next = NextPointer(config.width, config.reach) if self.objective.predicts_next else None
        self.edges = edge_predictor(config) if config.target_unit == "graph" else None
        self.card, self.about = "# A grapheme model\n", dict[str, Any]()  # what its folder says of it, see `save`

    def forward(self, batch: Data) -> PredictedGraph:
        """The predicted graphs of a batch of DAGs with `x` int64 [n]: what each node is."""
        graph = run_morphs(self.morphs, self.config.morphs, self.encoder(batch))
        predicted: PredictedGraph = self.relabel(graph)
        if self.next is not None:
            predicted = replace(predicted, next_log_prob=self.next(predicted.x, predicted.mask))
        if self.edges is not None:
            predicted = replace(predicted, candidates=self.edges(predicted.graph, predicted.x))
        return predicted

    def decode(self, predicted: PredictedGraph) -> Batch:
        """The hard graphs that predicted ones mean: a PyG batch with `x` int64 and `edge_index`."""
        return self.objective.decode(predicted).as_data(predicted)

    def transform(
        self,
        inputs: Sequence[Any],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
        return_scores: bool = False,
    ) -> Any:
        """What each input becomes; with `return_scores` also how sure that is, in (0, 1].

        Inputs are texts, or graphs: a `Graph`, the dictionary that JSONL has, a networkx graph or PyG `Data`. A text
        becomes a text or a `Graph`, as the model has learned; a graph becomes a text or a graph of the same kind.

        The score is made of exp(-value) of the objective (of all but `structural`, and where no edges are predicted,
        the probability of the output) by Platt scaling, which training has fitted on its dev pairs. It says nothing of
        inputs that are unlike those: see `unlike_training`. Inputs of similar size run together, `batch_size` at a
        time; the outputs do not depend on it.
        """
        sides, kinds = self._sides(inputs, features)
        sides = self._as_inputs(sides)
        outputs: list[str | Graph] = [self._empty] * len(sides)
        scores = [1.0] * len(sides)
        for rows, predicted, batch in self._predictions(sides, features, batch_size):
            made = self._read_out(predicted, batch, [sides[row] for row in rows])
            for row, output in zip(rows, made, strict=True):
                outputs[row] = output
            if return_scores:
                for row, value in zip(rows, self._values(predicted, made), strict=True):
                    scores[row] = self.calibration.score(-value)
        outputs = self.as_targets(outputs)
        given = [kind(side) if isinstance(side, Graph) else side for kind, side in zip(kinds, outputs, strict=True)]
        return (given, scores) if return_scores else given

    def candidates(
        self,
        inputs: Sequence[Any],
        *,
        best: int = 5,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
    ) -> list[list[tuple[str, float]]]:
        """The most probable outputs of each input with their scores, the best first; at most `best`, at least one.

        Only texts have them, and losses that are sums over walks, `monotone` and `path`. The first is the most probable
        text, summed over all the ways to spell it, which need not be what `transform` gives: that is the text of the
        most probable single way.
        """
        if self.config.target_unit == "graph":
            raise ModelError("only texts have candidates, but this model makes graphs")
        if type(best) is not int or best < 1:
            raise ValueError(f"best must be a whole number of at least 1, but is {best!r}")
        sides, _ = self._sides(inputs, features)
        sides = self._as_inputs(sides)
        for number, side in enumerate(sides):
            if (self.config.parts * len(str(side))) ** 2 > MOST_COMPARED:
                most = int(MOST_COMPARED**0.5) // self.config.parts
                raise ModelError(
                    f"inputs[{number}] has more than {most:,} characters: cut it into pieces for candidates"
                )
        found: list[list[tuple[str, float]]] = [[("", 1.0)] for _ in sides]
        for rows, predicted, batch in self._predictions(sides, features, batch_size):
            walks = self.objective.walks(predicted)
            if walks is None:
                raise ModelError(f"the loss {self.config.loss} has no candidates: train with monotone or path")
            made = best_outputs(walks, best)
            spelled = [[labels for labels, _ in outputs] for outputs in made]
            texts = read_candidates(self.config, predicted, batch, [sides[row] for row in rows], spelled)
            for row, outputs, spelling in zip(rows, made, texts, strict=True):
                scores = self.calibration.scores([value for _, value in outputs])
                found[row] = list(zip(map(str, self.as_targets(spelling)), scores, strict=True))
        return found

    @property
    def calibration(self) -> Calibration:
        """What makes scores of probabilities."""
        return Calibration(self.config.score_slope, self.config.score_offset)

    def unlike_training(
        self, inputs: Sequence[Any], *, features: Sequence[Sequence[str]] | None = None
    ) -> list[str | None]:
        """What about each input the model has not met in training, in words; None where there is nothing.

        That is a unit, or a label of a graph, or a feature that no pair had, or a size beyond all of them.
        """
        known, known_features = set(self.config.input_units), set(self.config.features)
        found: list[str | None] = []
        for row, side in enumerate(self._as_inputs(self._sides(inputs, features)[0])):
            units = side.nodes if isinstance(side, Graph) else units_of(side, self.config.input_unit)
            new = dict.fromkeys(unit for unit in units if known and unit not in known)
            strange = dict.fromkeys(name for name in (features or {row: ()})[row] if name not in known_features)
            reasons = [f"unseen {_listed(names)}" for names in (new, strange) if names]
            if 0 < self.config.longest_input < len(units):
                reasons.append(f"{len(units):,} nodes, at most {self.config.longest_input:,} in training")
            found.append("; ".join(reasons) or None)
        return found

    def log_probabilities(
        self,
        inputs: Sequence[Any],
        targets: Sequence[Any],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
    ) -> list[float]:
        """The log-probability that each input becomes its target, -inf where it cannot."""
        return self.judge(inputs, targets, features=features, batch_size=batch_size)[1]

    def judge(
        self,
        inputs: Sequence[Any],
        targets: Sequence[Any],
        *,
        features: Sequence[Sequence[str]] | None = None,
        batch_size: int = 256,
    ) -> tuple[list[Any], list[float]]:
        """What each input becomes, and the log-probability that it becomes its target, -inf where it cannot."""
        sides, _ = self._sides(inputs, features)
        if isinstance(targets, str) or len(targets) != len(sides):
            given = "one str: put it in a list" if isinstance(targets, str) else f"{len(targets)} targets"
            raise ModelError(f"there must be a target for each of {len(sides)} inputs, but got {given}")
        wanted = [as_side(target, f"targets[{number}]")[0] for number, target in enumerate(targets)]
        sides, wanted = self._as_inputs(sides), self.as_targets(wanted)
        outputs: list[str | Graph] = [self._empty] * len(sides)
        judged = [0.0 if target == self._empty else -inf for target in wanted]  # what is empty can only stay so
        for rows, predicted, batch in self._predictions(sides, features, batch_size):
            made = self._read_out(predicted, batch, [sides[row] for row in rows])
            values = self._values(predicted, [wanted[row] for row in rows])
            for row, output, value in zip(rows, made, values, strict=True):
                outputs[row], judged[row] = output, -value
        return self.as_targets(outputs), judged

    def as_targets(self, sides: Sequence[str | Graph]) -> list[str | Graph]:
        """Texts or graphs in the normalization form of this model's outputs, to be compared with those."""
        return [normalized(side, self.config.target_normalization) for side in sides]

    def save(
        self,
        folder: str | PathLike[str],
        *,
        overwrite: bool = False,
        card: str | None = None,
        **about: Mapping[str, Any],
    ) -> None:
        """Write the model folder: weights, configuration and card; `about` is what else `config.json` says.

        Of a training that is `training`, its settings; `data`, what it learned from; and `result`. What is not given
        is as it was in the folder that the model was loaded from. Files that are there are replaced with `overwrite`.
        """
        there = [name for name in (WEIGHTS, CONFIG, CARD) if (Path(folder) / name).exists()]
        if there and not overwrite:
            raise ModelError(f"{folder} has a {there[0]} already: name another folder, or give overwrite=True")
        config = {"model": asdict(self.config)} | self.about | about
        write_folder(folder, self.state_dict(), config, self.card if card is None else card)

    @classmethod
    def load(cls, folder: str | PathLike[str], device: torch.device | str = "cpu") -> Self:
        """The model in a folder. Nothing in the folder is executed; what does not fit is a `ModelError`."""
        weights, config = read_folder(folder)
        unknown = [key for key in config["model"] if key not in {field.name for field in fields(ModelConfig)}]
        if unknown:
            raise ModelError(f"the configuration of {folder} has the unknown key {unknown[0]!r}")
        try:
            values: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in config["model"].items()
            }
            size = sum(tensor.numel() for tensor in weights.values())
            for name in ("width", "hidden", "layers", "heads", "parts", "buckets", "hashes"):
                if isinstance(values.get(name), int) and values[name] > size:
                    raise ValueError(f"{name} {values[name]:,} is more than there are weights")
            with torch.random.fork_rng(devices=[]):  # nobody's random numbers change: the first weights are replaced
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
        if not all(tensor.isfinite().all() for tensor in weights.values()):
            raise ModelError(f"the weights in {folder} are not finite numbers")
        model.load_state_dict(weights)
        model.card = read_card(folder)
        model.about = {key: config[key] for key in ("training", "data", "result") if key in config}
        try:
            return model.to(device).eval()
        except (AssertionError, RuntimeError) as error:
            raise ModelError(f"the model cannot be put on the device {device}: {error}") from None

    @property
    def _empty(self) -> "str | Graph":
        """What nothing becomes."""
        return Graph((), (), self.config.edges != "undirected") if self.config.target_unit == "graph" else ""

    def _sides(
        self, inputs: Sequence[Any], features: Sequence[Sequence[str]] | None
    ) -> tuple[list[str | Graph], list[Any]]:
        """The inputs as texts or graphs, and for each what makes a graph of the same kind."""
        if isinstance(inputs, str):
            raise TypeError("texts must be a list of texts, but got one str: put it in a list")
        if not isinstance(inputs, Sequence) or isinstance(inputs, Graph):
            raise TypeError(f"inputs must be a list, but got one {type(inputs).__name__}: put it in a list")
        if self.config.features and features is None and inputs:
            some = cut(", ".join(self.config.features[:3]))
            raise ModelError(f"this model was trained with features (such as {some}): give features for every text")
        if features is not None and len(features) != len(inputs):
            raise ModelError(f"there are {len(inputs)} texts, but features for {len(features)}")
        for number, units in enumerate(features or ()):
            is_list = isinstance(units, Sequence) and not isinstance(units, str)
            if not is_list or not all(isinstance(unit, str) for unit in units):
                wanted = "a list of strings, as split_features makes one"
                raise TypeError(f"features[{number}] must be {wanted}, but is {shown(units)}")
        sides = [as_side(value, f"inputs[{number}]") for number, value in enumerate(inputs)]
        for number, (side, _) in enumerate(sides):
            if isinstance(side, Graph) != (self.config.input_unit == "graph"):
                wanted = "graphs" if self.config.input_unit == "graph" else "texts"
                raise ModelError(f"this model reads {wanted}, but inputs[{number}] is {shown(side)}")
        return [side for side, _ in sides], [kind for _, kind in sides]

    def _as_inputs(self, sides: Sequence[str | Graph]) -> list[str | Graph]:
        return [normalized(side, self.config.input_normalization) for side in sides]

    def _predictions(
        self, sides: Sequence[str | Graph], features: Sequence[Sequence[str]] | None, batch_size: int
    ) -> Iterator[tuple[list[int], PredictedGraph, Data]]:
        """The inputs that are not empty, in batches of similar size: rows, predicted graphs, and what they are of.

        The network is in evaluation mode meanwhile.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number of at least 1, but is {batch_size!r}")
        sizes = [len(side.nodes) if isinstance(side, Graph) else len(side) for side in sides]
        for row, side in enumerate(sides):
            if problem := self.too_long(side):
                raise ModelError(f"inputs[{row}]: {problem}")
        per_node = self.config.parts * (2 + len(self.config.labels))
        cells = [size * max(size, per_node) for size in sizes]
        order = sorted((row for row, size in enumerate(sizes) if size), key=sizes.__getitem__)
        training, device = self.training, self.relabel.label.weight.device
        if training:
            self.eval()
        try:
            with torch.no_grad():
                start = 0
                while start < len(order):
                    rows = order[start : start + batch_size]
                    fitting = sum(number * cells[row] <= MOST_CELLS for number, row in enumerate(rows, 1))
                    rows = rows[: max(1, fitting)]
                    start += len(rows)
                    named: list[Integers] | None = None
                    if features is not None:
                        named = [np.array(name_identities(features[row]), dtype=np.int64) for row in rows]
                    batch = collate(encode([sides[row] for row in rows], self.config.input_unit), named)
                    predicted: PredictedGraph = self(batch if device.type == "cpu" else batch.to(device))
                    yield rows, predicted, batch
        finally:
            if training:
                self.train()

    def _read_out(self, predicted: PredictedGraph, batch: Data, inputs: Sequence[str | Graph]) -> list[str | Graph]:
        return read_out(self.config, predicted, self.objective.decode(predicted), batch, inputs)

    def too_long(self, side: "str | Graph") -> str:
        """What to say of an input that attention would look at for ever; empty where it would not."""
        size = len(side.nodes) if isinstance(side, Graph) else len(side)
        if not self.config.heads or size <= LONGEST:
            return ""
        return f"the input has {size:,} nodes, but {LONGEST:,} are the most: cut it into pieces"

    def _values(self, predicted: PredictedGraph, targets: Sequence[str | Graph]) -> list[float]:
        """The objective's value of each target."""
        batch = collate(encode(targets, self.config.target_unit)).to(predicted.unit.device)
        if predicted.candidates is not None or self.objective.value_has_plan:
            slots, nodes = predicted.mask.size(1), int(batch.ptr.diff().max())
            if slots * max(slots if predicted.candidates is not None else 0, nodes) > MOST_COMPARED:
                raise ModelError(
                    f"{slots:,} slots are too many for a score: ask for none, or cut the input into pieces"
                )
        values: list[float] = self.objective.value(predicted, batch).tolist()
        return values


def _listed(names: Iterable[str]) -> str:
    """The first three, shortened."""
    named = [repr(name if len(name) <= 20 else f"{name[:20]}...") for name in names]
    return ", ".join(named[:3]) + (f" and {len(named) - 3:,} more" if len(named) > 3 else "")
