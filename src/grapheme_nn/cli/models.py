"""Loads one model or an ensemble from folders, and runs inference on pairs, with features where they are needed."""

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grapheme_nn.cli.sentences import Unusable, WrongUse, say
from grapheme_nn.data import Graph, Line, Pair
from grapheme_nn.data.graphs import shown
from grapheme_nn.data.objects import as_object
from grapheme_nn.data.pairs import BadLine, is_empty

if TYPE_CHECKING:
    from grapheme_nn.graph import Unit


class Models:
    """One model, or several that vote by their mean probability: those of ensembles, and of several folders."""

    def __init__(self, folders: Sequence[Path], device: str | None = None) -> None:
        from grapheme_nn.ensemble import Ensemble, check_units, load
        from grapheme_nn.model import GraphTransformNet

        device = find_device(device)
        self._loaded = {folder: load(folder, device=device) for folder in folders}
        self.models: list[GraphTransformNet] = []
        self.folders: list[Path] = []  # of each model
        for folder in folders:
            found = self._loaded[folder]
            models = found.models if isinstance(found, Ensemble) else (found,)
            self.models += models
            self.folders += [folder] * len(models)
        check_units({str(folder): model for folder, model in zip(self.folders, self.models, strict=True)})
        self._voting = self._loaded[folders[0]] if len(folders) == 1 else Ensemble(self.models)
        self._warned = False
        self._warn_of_strangers()

    @property
    def target_unit(self) -> "Unit":
        return self.models[0].config.target_unit

    @property
    def reads_graphs(self) -> bool:
        """Whether what goes in is a graph."""
        return str(self.models[0].config.input_unit) == "graph"

    @property
    def has_graphs(self) -> bool:
        """Whether what goes in or comes out is a graph."""
        return self.reads_graphs or str(self.target_unit) == "graph"

    @property
    def empty(self) -> str | Graph:
        """What nothing becomes."""
        is_directed = self.models[0].config.edges != "undirected"
        return Graph((), (), is_directed) if str(self.target_unit) == "graph" else ""

    def checked(self, line: Line) -> Line:
        """The line, a bad one where its input is too long, or a text where the models read graphs, or the other way
        round; a text that begins as JSON does is one that is not valid."""
        is_graph = line.pair is not None and isinstance(line.pair.input, Graph)
        if self.reads_graphs and not is_graph and line.row is None and line.text.lstrip()[:1] == "{":
            try:
                as_object(line.text)
            except BadLine as error:
                return line._replace(pair=None, problem=str(error))
        if line.pair is None or is_empty(line.pair.input):
            return line
        wrong = self._misfit(line.pair.input)
        return line._replace(pair=None, problem=wrong) if wrong else line

    def check_pairs(self, pairs: Sequence[Pair], source: object) -> None:
        """That inputs and targets are of the kinds that the models read and make."""
        for pair in pairs:
            wrong = self._misfit(pair.input) or misfit(self.folders[0], "makes", str(self.target_unit), pair.target)
            if wrong:
                raise Unusable(f"{source}: {wrong}")

    def transform(
        self, pairs: Sequence[Pair], source: object, batch_size: int, *, scores: bool = False
    ) -> tuple[Sequence[str | Graph], list[float] | None]:
        """What the inputs become, and where wished how sure that is; `source` is where they come from."""
        inputs: list[Any] = [pair.input for pair in pairs]
        features = self._features(pairs, source)
        made = self._voting.transform(inputs, features=features, batch_size=batch_size, return_scores=scores)
        return (made[0], made[1]) if scores else (made, None)

    def candidates(
        self, pairs: Sequence[Pair], source: object, batch_size: int, best: int
    ) -> list[list[tuple[str, float]]]:
        """The most probable outputs of the inputs, with their scores."""
        features = self._features(pairs, source)
        inputs = [pair.input for pair in pairs]
        return self._voting.candidates(inputs, best=best, features=features, batch_size=batch_size)

    def unlike_training(self, pairs: Sequence[Pair]) -> list[str | None]:
        """What about each input the models have not met in training; where they differ in that, with their folders."""
        from grapheme_nn.ensemble import Ensemble, joined

        inputs, features = [pair.input for pair in pairs], [pair.features for pair in pairs]
        found = (
            one.unlike_training(inputs, features=features if isinstance(one, Ensemble) or one.config.features else None)
            for one in self._loaded.values()
        )
        return [joined([*map(str, self._loaded)], sentences) for sentences in zip(*found, strict=True)]

    def _warn_of_strangers(self) -> None:
        """Models that spell with other labels, such as those of two languages, can vote, but hardly are meant to."""
        for (one, first), (other, second) in combinations(zip(self.folders, self.models, strict=True), 2):
            labels = set(first.config.labels), set(second.config.labels)
            shared, fewest = len(labels[0] & labels[1]), min(map(len, labels))
            if 2 * shared < fewest:
                has = f"share {shared} of {fewest} labels"
                say(f"warning: {one} and {other} {has}: let models vote that were trained on the same kind of pairs")
                return

    def _misfit(self, side: str | Graph) -> str:
        folders = zip(self.folders, self.models, strict=True)
        found = (misfit(folder, "reads", str(model.config.input_unit), side) for folder, model in folders)
        too_long = (model.too_long(side) for model in self.models)
        return next(filter(None, (*found, *too_long)), "")

    def _features(self, pairs: Sequence[Pair], source: object) -> list[tuple[str, ...]] | None:
        given = any(pair.features for pair in pairs)
        if not given:
            for folder, model in zip(self.folders, self.models, strict=True):
                if model.config.features:
                    raise Unusable(
                        f"{folder} was trained with features, but {source} gives none: "
                        "add a column and name it, such as --columns input,features"
                    )
            return None
        if not self._warned and not any(model.config.features for model in self.models):
            say(f"warning: {source} has features, but {self.folders[0]} was trained without, so they change nothing")
            self._warned = True
        return [pair.features for pair in pairs]


def find_device(name: str | None) -> str:
    """The device of that name, or without one a GPU, where there is any; refused where the machine has none such."""
    if name is not None and not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise WrongUse(f"--device {name} is no device: give cpu, cuda, cuda:1 or mps")
    import torch

    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    there = ["cpu", *(["cuda"] if gpus else []), *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
    if name is None:
        return "cuda" if gpus else "cpu"
    if name not in there:
        raise Unusable(f"--device {name} is not there: this machine has {', '.join(there)}")
    return name


def misfit(folder: Path, does: str, unit: str, side: str | Graph) -> str:
    """What is wrong with an input, or a target, that is no graph where the model's unit says so, or one where not."""
    if isinstance(side, Graph) == (unit == "graph"):
        return ""
    from grapheme_nn.drawing import preview

    given = preview(side) if isinstance(side, Graph) else f"the text {shown(side)}"
    example = 'graphs, such as {"nodes": ["+", "x", "1"], "edges": [[1, 0, 0], [2, 0, 1]]}'
    return f"{folder} {does} {example if unit == 'graph' else 'texts'}, but this is {given}"
