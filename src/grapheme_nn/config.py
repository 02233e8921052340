"""Configuration: what a network is made of, and how to train it."""

from dataclasses import dataclass, field, fields
from math import isfinite
from typing import get_args

from grapheme_nn.candidates import EDGE_KINDS
from grapheme_nn.graph import UNITS, Unit
from grapheme_nn.normalization import FORMS, Form
from grapheme_nn.registry import MORPHS, OBJECTIVES

# What a whole number may be; others are at least 1.
_LEAST = {
    "heads": 0,
    "hops": 0,
    "longest_input": 0,
    "patience": 0,
    "seed": 0,
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a network is made of, as far as it does not depend on the pairs."""

    morphs: tuple[str, ...] = ("split",)  # names in `MORPHS`, in order; relabelling comes after them
    width: int = 128  # channels
    layers: int = 2
    hidden: int = 96  # channels of the recurrence in each direction
    hops: int = 2  # edges that may lie between nodes whose slots an edge may join, where targets are graphs; 0: any

    def __post_init__(self) -> None:
        for own in fields(self):
            value, least = getattr(self, own.name), _LEAST.get(own.name, 1)
            kinds = get_args(own.type) or (own.type,)
            if value is None:
                continue
            if int in kinds and (type(value) is not int or value < least):
                raise ValueError(f"{own.name} must be a whole number of at least {least}, but is {value!r}")
            if float in kinds and (type(value) not in (int, float) or not isfinite(value)):
                raise ValueError(f"{own.name} must be a number, but is {value!r}")
            strings = isinstance(value, tuple) and all(isinstance(part, str) for part in value)
            if own.type == tuple[str, ...] and not strings:
                raise ValueError(f"{own.name} must be strings, but are {value!r:.80}")
        values = self.__dict__
        for side in ("input", "target"):
            for name, words in ((f"{side}_unit", (*UNITS, "graph")), (f"{side}_normalization", FORMS)):
                if values[name] is not None and values[name] not in words:
                    choice = ", ".join(word for word in words if word != "graph")
                    raise ValueError(f"unknown {name} {values[name]!r}: choose one of {choice}")
        loss, dropout = values["loss"], values["dropout"]
        for registry, name in ((OBJECTIVES, loss), *((MORPHS, morph) for morph in self.morphs)):
            if name is not None and name not in registry:
                registry.__missing__(name)
        if dropout is not None and not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), but is {dropout!r}")


@dataclass(frozen=True)
class ModelConfig(Shape):
    """What a network is made of, and what it speaks."""

    labels: tuple[str, ...]  # the units of targets that it can spell itself; others can only be copied
    features: tuple[str, ...] = ()  # the features it was trained with, where it takes any
    input_unit: Unit = field(default="codepoint", kw_only=True)
    target_unit: Unit = field(default="codepoint", kw_only=True)
    input_normalization: Form = field(default="none", kw_only=True)  # what inputs are brought into
    target_normalization: Form = field(default="none", kw_only=True)  # what outputs come in
    loss: str = "monotone"  # a name in `OBJECTIVES`
    heads: int = 4  # of attention; 0 for none
    dropout: float = 0.2
    parts: int = 2  # r: slots that a split makes of each node
    reach: int = 8  # how far ahead the slot after a slot may be, where that is predicted
    edges: str = "operands"  # what candidate edges are, one of `EDGE_KINDS`, where targets are graphs
    edge_types: tuple[int | str, ...] = ()  # of the edges of inputs, where these are graphs
    target_edge_types: tuple[int | str, ...] = ()  # of the edges of targets, where these are graphs
    buckets: int = 1024  # of each hash of the embedding
    hashes: int = 4
    input_units: tuple[str, ...] = ()  # of the inputs that it was trained on; empty where nobody knows
    longest_input: int = 0  # nodes of the longest of them; 0 where nobody knows
    score_slope: float = 1.0  # of Platt scaling, see `Calibration`
    score_offset: float = 0.0

    def __post_init__(self) -> None:
        missing = [own.name for own in fields(self) if getattr(self, own.name) is None]
        if missing:
            raise ValueError(f"{missing[0]} must not be None")
        super().__post_init__()
        if self.score_slope <= 0:
            raise ValueError(f"score_slope must be above 0, but is {self.score_slope!r}")
        if self.edges not in EDGE_KINDS:
            raise ValueError(f"unknown edges {self.edges!r}: choose one of {', '.join(EDGE_KINDS)}")
        for name in ("edge_types", "target_edge_types"):
            types = getattr(self, name)
            if not isinstance(types, tuple) or not all(isinstance(kind, int | str) for kind in types):
                raise ValueError(f"{name} must be numbers or strings, but are {types!r:.80}")


@dataclass(frozen=True)
class TrainConfig(Shape):
    """How to train, and what. The defaults are those of the preset `small`."""

    preset: str = "small"
    input_unit: Unit | None = field(default=None, kw_only=True)  # None: by looking at the texts, see `choose_units`
    target_unit: Unit | None = field(default=None, kw_only=True)
    input_normalization: Form | None = field(default=None, kw_only=True)  # None: the form that all have, else NFC
    target_normalization: Form | None = field(default=None, kw_only=True)
    loss: str | None = None  # None: structural where targets are graphs, else monotone
    heads: int | None = None  # None: none where inputs or targets are graphs, else 4
    dropout: float | None = None  # None: 0.1 where inputs or targets are graphs, else 0.2
    parts: int | None = None  # r; None: the smallest that covers 99.5% of the pairs; of graphs, one more
    reach: int | None = None  # None: 8, or twice as many as parts
    epochs: int | None = None  # None: as many as make 200,000 examples, and more where there are few pairs
    batch_size: int = 32  # at most; less where there are few pairs
    learning_rate: float | None = None  # None: 0.001 where inputs or targets are graphs, else 0.003
    warmup: float = 0.1  # share of the steps
    weight_decay: float = 0.01
    clip: float = 1.0
    accumulate: int = 1
    ema: float = 0.998
    patience: int | None = None  # epochs without a better dev exact match, once there is any; 0: for ever; None: a
    # quarter of all, at least 15
    unseen: float = 0.02  # share of examples with a character made unseen, where the task is one of copying
    time_limit: float | None = None  # minutes; the learning rate then falls with the time
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset not in ("small", "base"):
            raise ValueError(f"unknown preset {self.preset!r}: choose one of small, base")
        for name in ("epochs", "parts", "reach", "learning_rate", "clip", "time_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, but is {value}")
        for name in ("warmup", "ema", "unseen"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), but is {getattr(self, name)}")
        for name in ("patience", "weight_decay"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")


@dataclass(frozen=True)
class Resolved(TrainConfig):
    """A configuration in which nothing is left open."""

    input_unit: Unit = field(default="codepoint", kw_only=True)
    target_unit: Unit = field(default="codepoint", kw_only=True)
    input_normalization: Form = field(default="none", kw_only=True)
    target_normalization: Form = field(default="none", kw_only=True)
    loss: str = "monotone"
    heads: int = 4
    dropout: float = 0.2
    learning_rate: float = 3e-3
    parts: int = 1
    reach: int = 8
    epochs: int = 1
    patience: int = 15


PRESETS: dict[str, TrainConfig] = {
    "small": TrainConfig(),
    "base": TrainConfig(
        preset="base", width=256, hidden=256, layers=3, heads=8, dropout=0.3, batch_size=64, learning_rate=1e-3
    ),
}
