"""Training: a plain loop from pairs to a model folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from random import Random
from time import perf_counter

from grapheme_nn.checkpoint import FILE, load_checkpoint
from grapheme_nn.config import Resolved, TrainConfig
from grapheme_nn.data import Pair
from grapheme_nn.model_folder import ModelError
from grapheme_nn.trainer import METRICS, Run, Trainer

STEPS_BETWEEN_CHECKPOINTS = 1000
PERFECT_EPOCHS = 3  # in a row: then there is nothing left to learn from the dev pairs


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
    parts: int
    not_covered: int  # pairs whose target is too long for the slots: they taught nothing
    parameters: int
    warnings: tuple[str, ...] = ()

    @property
    def learned_nothing(self) -> bool:
        """Whether no dev pair ever came out right, and in the end most outputs were the same."""
        return self.best_dev_exact_match == 0 and bool(self.warnings)


def train(
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TrainResult:
    """Train on pairs and leave the best model in the folder `out`.

    The best is that with the highest dev exact match, and of equals that with the highest dev log-probability. Beside
    it there are `metrics.jsonl`, a line per epoch, and a checkpoint. With `resume` a run that was stopped goes on from
    there, and on the CPU ends with the same weights, bit for bit, as if it had not been stopped. Without dev pairs the
    first 1,000 training pairs take their place.
    """
    out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(pairs, dev, config)
    settings, run = trainer.config, _begin(trainer, out, resume)
    started = perf_counter() - run.total_seconds
    while run.epoch < settings.epochs and not _enough(run, settings):
        steps = trainer.steps(run.epoch)
        while run.step < len(steps) and _time_used(run, settings) < 1:
            begun = perf_counter()
            rate = _learning_rate(run, settings, settings.epochs * len(steps))
            random = Random(f"{config.seed} {run.epoch} {run.step}")
            done = _done(run, settings, settings.epochs * len(steps))
            loss, counted = trainer.step(steps[run.step], rate, random, done)
            run.loss, run.counted = run.loss + loss, run.counted + counted
            run.merged, run.nodes = run.merged + trainer.merged, run.nodes + trainer.nodes
            run.step, run.total_steps = run.step + 1, run.total_steps + 1
            run.examples += sum(map(len, steps[run.step - 1]))
            run.seconds += perf_counter() - begun
            run.total_seconds = perf_counter() - started
            if progress is not None and run.step < len(steps):
                progress(_progress(run, settings, len(steps)))
            if run.total_steps % STEPS_BETWEEN_CHECKPOINTS == 0:
                trainer.save_checkpoint(run, out)
        run.dev, run.dev_log_probability, run.warning = trainer.evaluate()
        run.epoch += 1
        run.total_seconds = perf_counter() - started
        if run.dev > run.best:
            run.gained = run.epoch
        if (run.dev, run.dev_log_probability) > (run.best, run.best_log_probability):
            run.best, run.best_log_probability, run.best_epoch = run.dev, run.dev_log_probability, run.epoch
            trainer.save_model(run, out)
        run.perfect = run.perfect + 1 if run.dev == 1 else 0
        trainer.write_metrics(run, rate, out)
        if progress is not None:
            progress(_progress(run, settings, len(steps)))
        run.step, run.loss, run.counted, run.merged, run.nodes = 0, 0.0, 0, 0, 0
        trainer.save_checkpoint(run, out)
    return TrainResult(
        best_dev_exact_match=run.best,
        best_epoch=run.best_epoch,
        epochs=run.epoch,
        seconds=run.total_seconds,
        parts=settings.parts,
        not_covered=trainer.not_covered,
        parameters=sum(parameter.numel() for parameter in trainer.network.parameters()),
        warnings=(run.warning,) if run.warning else (),
    )


def _begin(trainer: Trainer, out: Path, resume: bool) -> Run:
    """The run to continue, or a new one in a folder without traces of others."""
    metrics, run, lines = out / METRICS, Run(), []
    if resume and (out / FILE).is_file():
        state = load_checkpoint(out, trainer.network, trainer.average, trainer.optimizer)
        if state["config"] != trainer.identity:
            raise ModelError(f"the checkpoint in {out} was made with other pairs or options: train without resuming")
        run = Run(**state["run"])
        if metrics.is_file():
            lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    else:
        (out / FILE).unlink(missing_ok=True)
    metrics.write_text("".join(lines[: run.epoch]), encoding="utf-8")
    return run


def _enough(run: Run, config: Resolved) -> bool:
    """Whether another epoch would be wasted, or is not allowed."""
    # Before anything is right, the exact match cannot tell whether something is being learned.
    impatient = 0 < config.patience <= run.epoch - run.gained and run.best > 0
    return impatient or run.perfect >= PERFECT_EPOCHS or _time_used(run, config) >= 1


def _time_used(run: Run, config: TrainConfig) -> float:
    """The share of the time limit; 0 without any."""
    return 0.0 if config.time_limit is None else run.total_seconds / (60 * config.time_limit)


def _done(run: Run, config: TrainConfig, steps: int) -> float:
    """The share of the run that is done, by steps or by time, whichever says more."""
    return min(max(run.total_steps / steps, _time_used(run, config)), 1.0)


def _learning_rate(run: Run, config: Resolved, steps: int) -> float:
    """Up in a line for the first part of the run, then down along half a cosine."""
    done = _done(run, config, steps)
    warm = (done + 1 / steps) / max(config.warmup, 1 / steps)
    return config.learning_rate * min(warm, 1.0) * max((1 + cos(pi * done)) / 2, 1e-3)


def _progress(run: Run, config: Resolved, steps: int) -> Progress:
    done = max(_done(run, config, steps * config.epochs), 1e-9)
    return Progress(
        epoch=min(run.epoch + 1, config.epochs) if run.step < steps else max(run.epoch, 1),
        epochs=config.epochs,
        step=run.step,
        steps=steps,
        loss=run.loss / max(run.counted, 1),
        dev_exact_match=run.dev,
        examples_per_second=run.examples / max(run.seconds, 1e-9),
        seconds_left=run.total_seconds * (1 - done) / done,
    )
