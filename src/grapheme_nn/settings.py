"""The room of settings: how to train, how far training is, and what came of it."""

from dataclasses import dataclass

from grapheme_nn.graph import Unit
from grapheme_nn.model import LossName


@dataclass(frozen=True)
class TrainConfig:
    """How to train, and what. The defaults are those of the preset `small`."""

    preset: str = "small"
    loss: LossName = "ctc"
    input_unit: Unit = "codepoint"
    target_unit: Unit = "codepoint"
    parts: int | None = None  # r; None: the smallest that covers 99.5% of the pairs
    width: int = 128
    layers: int = 2
    heads: int = 4
    hidden: int = 96
    reach: int | None = None  # None: 8, or twice as many as parts
    merge: bool = False
    epochs: int | None = None  # None: as many as make 320,000 examples, from 4 to 100
    batch_size: int = 64  # at most; less where there are few pairs
    learning_rate: float = 2e-3
    warmup: float = 0.1  # share of the steps
    weight_decay: float = 0.01
    dropout: float = 0.2
    clip: float = 1.0
    accumulate: int = 1
    ema: float = 0.998
    patience: int = 15  # epochs without a better dev exact match; 0 for no early stopping
    unseen: float = 0.02  # share of examples with a character made unseen, where the task is one of copying
    time_limit: float | None = None  # minutes; the learning rate then falls with the time
    seed: int = 0

    def __post_init__(self) -> None:
        if self.preset not in ("small", "base"):
            raise ValueError(f"unknown preset {self.preset!r}: choose one of small, base")
        for name in ("batch_size", "accumulate", "epochs", "parts", "reach", "learning_rate", "clip", "time_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, but is {value}")
        for name in ("warmup", "dropout", "ema", "unseen"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), but is {getattr(self, name)}")
        if self.patience < 0 or self.weight_decay < 0:
            raise ValueError(f"patience ({self.patience}) and weight_decay ({self.weight_decay}) must not be negative")


@dataclass(frozen=True)
class Resolved(TrainConfig):
    """A configuration in which nothing is left open."""

    parts: int = 1
    reach: int = 8
    epochs: int = 1


PRESETS: dict[str, TrainConfig] = {
    "small": TrainConfig(),
    "base": TrainConfig(preset="base", width=256, hidden=256, layers=3, heads=8, dropout=0.3, learning_rate=1e-3),
}


@dataclass(frozen=True)
class Progress:
    """Where training is: told after some steps, and after every epoch with the dev exact match it reached."""

    epoch: int
    epochs: int
    step: int  # of this epoch
    steps: int
    loss: float  # mean of this epoch so far
    dev_exact_match: float | None  # of the last epoch that ended
    examples_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class TrainResult:
    """What came of it."""

    best_dev_exact_match: float
    best_epoch: int
    epochs: int  # that were run
    seconds: float
    examples_per_second: float  # of training alone
    parts: int
    not_covered: int  # pairs whose target is too long for the slots: they taught nothing
    parameters: int
    warnings: tuple[str, ...] = ()
