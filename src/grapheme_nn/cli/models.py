"""Loads one model or an ensemble from folders, and runs inference on pairs, with features where they are needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grapheme_nn.cli.sentences import Unusable, say
from grapheme_nn.data import Graph, Pair

if TYPE_CHECKING:
    from grapheme_nn.graph import Unit


class Models:
    """One model, or several that vote by their mean log-probability."""

    def __init__(self, folders: Sequence[Path]) -> None:
        import torch

        from grapheme_nn.model import GraphTransformNet

        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.folders = folders
        self.models: list[GraphTransformNet] = [GraphTransformNet.load(folder, device=device) for folder in folders]
        self._warned = False
        units = {folder: model.config.target_unit for folder, model in zip(folders, self.models, strict=True)}
        for folder, unit in units.items():
            if unit != self.target_unit:
                raise Unusable(
                    f"{folder} spells in units of {unit}, but {folders[0]} in units of {self.target_unit}: "
                    "only models with the same target unit can vote"
                )

    @property
    def target_unit(self) -> "Unit":
        return self.models[0].config.target_unit

    def transform(
        self, pairs: Sequence[Pair], source: object, batch_size: int, *, scores: bool = False
    ) -> tuple[Sequence[str | Graph], list[float] | None]:
        """What the inputs become, and where wished how sure that is; `source` is where they come from."""
        from grapheme_nn.model import transform_ensemble

        inputs: list[Any] = [pair.input for pair in pairs]
        for folder, model in zip(self.folders, self.models, strict=True):
            check_kind(folder, "reads", str(model.config.input_unit), source, inputs)
        features = self._features(pairs, source)
        if len(self.models) > 1:
            return transform_ensemble(self.models, inputs, features=features, batch_size=batch_size)
        made = self.models[0].transform(inputs, features=features, batch_size=batch_size, return_scores=scores)
        return (made[0], made[1]) if scores else (made, None)

    def check_targets(self, targets: Sequence[str | Graph], source: object) -> None:
        """That the targets are of the kind that the models make."""
        check_kind(self.folders[0], "makes", str(self.target_unit), source, targets)

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


def check_kind(folder: Path, does: str, unit: str, source: object, sides: Sequence[str | Graph]) -> None:
    """That inputs, or targets, are graphs where the model's unit says so, and texts where not."""
    for side in sides:
        if isinstance(side, Graph) != (unit == "graph"):
            from grapheme_nn.drawing import preview

            given = preview(side) if isinstance(side, Graph) else f"the text {side!r}"
            if unit == "graph":
                way_out = 'graphs, such as {"nodes": ["+", "x", "1"], "edges": [[1, 0, 0], [2, 0, 1]]}'
            else:
                way_out = "texts"
            raise Unusable(f"{folder} {does} {way_out}, but {source} has {given}")
