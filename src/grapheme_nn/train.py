"""The room of training: a plain loop from pairs to a model folder."""

from collections.abc import Callable, Sequence
from math import ceil, cos, pi
from pathlib import Path
from random import Random
from time import perf_counter

from grapheme_nn.checkpoint import FILE, load_checkpoint
from grapheme_nn.data import Pair
from grapheme_nn.folder import ModelError
from grapheme_nn.settings import PRESETS, Progress, Resolved, TrainConfig, TrainResult
from grapheme_nn.training import METRICS, Run, Training

__all__ = ["PRESETS", "Progress", "TrainConfig", "TrainResult", "train"]

STEPS_BETWEEN_CHECKPOINTS = 1000
PERFECT_EPOCHS = 3  # in a row: then there is nothing left to learn from the dev pairs


def train(
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TrainResult:
    """Train on pairs and leave the model with the best dev exact match in the folder `out`.

    Beside the model there are `metrics.jsonl`, a line per epoch, and a checkpoint. With `resume` a run that was stopped
    goes on from there, and on the CPU ends with the same weights, bit for bit, as if it had not been stopped. Without
    dev pairs the first 1,000 training pairs take their place.
    """
    out.mkdir(parents=True, exist_ok=True)
    training = Training(pairs, dev, config)
    settings, run = training.config, _begin(training, out, resume)
    started = perf_counter() - run.total_seconds
    while run.epoch < settings.epochs and not _enough(run, settings):
        steps = training.steps(run.epoch)
        while run.step < len(steps) and not _time_is_up(run, settings):
            begun = perf_counter()
            rate = _learning_rate(run, settings, settings.epochs * len(steps))
            random = Random(f"{config.seed} {run.epoch} {run.step}")
            loss, counted = training.step(steps[run.step], rate, random, run.total_steps)
            run.loss, run.counted = run.loss + loss, run.counted + counted
            run.step, run.total_steps = run.step + 1, run.total_steps + 1
            run.examples += sum(map(len, steps[run.step - 1]))
            run.seconds += perf_counter() - begun
            run.total_seconds = perf_counter() - started
            if progress is not None and run.step < len(steps):
                progress(_progress(run, settings, len(steps)))
            if run.total_steps % STEPS_BETWEEN_CHECKPOINTS == 0:
                training.save_checkpoint(run, out)
        run.dev, run.warning = training.evaluate()
        run.epoch += 1
        run.total_seconds = perf_counter() - started
        if run.dev > run.best:
            run.best, run.best_epoch = run.dev, run.epoch
            training.save_model(run, out)
        run.perfect = run.perfect + 1 if run.dev == 1 else 0
        training.write_metrics(run, rate, out)
        if progress is not None:
            progress(_progress(run, settings, len(steps)))
        run.step, run.loss, run.counted = 0, 0.0, 0
        training.save_checkpoint(run, out)
    return TrainResult(
        best_dev_exact_match=run.best,
        best_epoch=run.best_epoch,
        epochs=run.epoch,
        seconds=run.total_seconds,
        examples_per_second=run.examples / max(run.seconds, 1e-9),
        parts=settings.parts,
        not_covered=training.not_covered,
        parameters=sum(parameter.numel() for parameter in training.network.parameters()),
        warnings=(run.warning,) if run.warning else (),
    )


def _begin(training: Training, out: Path, resume: bool) -> Run:
    """The run to continue, or a new one in a folder without traces of others."""
    metrics = out / METRICS
    if resume and (out / FILE).is_file():
        state = load_checkpoint(out, training.network, training.average, training.optimizer)
        if state["config"] != training.identity:
            raise ModelError(f"the checkpoint in {out} was made with other pairs or options: train without resuming")
        run = Run(**state["run"])
        lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True) if metrics.is_file() else []
        metrics.write_text("".join(lines[: run.epoch]), encoding="utf-8")
        return run
    (out / FILE).unlink(missing_ok=True)
    metrics.write_text("", encoding="utf-8")
    return Run()


def _enough(run: Run, config: Resolved) -> bool:
    """Whether another epoch would be wasted, or is not allowed."""
    # Before anything is right, the exact match cannot tell whether something is being learned.
    impatient = 0 < config.patience <= run.epoch - run.best_epoch and run.best > 0
    return impatient or run.perfect >= PERFECT_EPOCHS or _time_is_up(run, config)


def _time_is_up(run: Run, config: TrainConfig) -> bool:
    return config.time_limit is not None and run.total_seconds >= 60 * config.time_limit


def _done(run: Run, config: TrainConfig, steps: int) -> float:
    """The share of the run that is done, by steps or by time, whichever says more."""
    by_time = 0.0 if config.time_limit is None else run.total_seconds / (60 * config.time_limit)
    return min(max(run.total_steps / steps, by_time), 1.0)


def _learning_rate(run: Run, config: TrainConfig, steps: int) -> float:
    """Up in a line for the first steps, then down along half a cosine."""
    warm = max(1, ceil(config.warmup * steps))
    falling = (1 + cos(pi * _done(run, config, steps))) / 2
    return config.learning_rate * min((run.total_steps + 1) / warm, 1.0) * max(falling, 1e-3)


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
