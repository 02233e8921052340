"""Training: a plain loop from pairs to a model folder."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import cos, pi
from os import PathLike
from pathlib import Path
from random import Random
from time import perf_counter

import torch
from accelerate import Accelerator

from grapheme_nn.checkpoint import FILE, UNFINISHED, has_stopped_members, load_checkpoint
from grapheme_nn.config import Resolved, TrainConfig
from grapheme_nn.data import Pair
from grapheme_nn.folder_lock import locked, refuse_locked
from grapheme_nn.model_folder import CARD, CONFIG, MEMBERS, WEIGHTS, ModelError, holds_members, read_config
from grapheme_nn.trainer import METRICS, Run, Trainer

STEPS_BETWEEN_CHECKPOINTS = 1000
PERFECT_EPOCHS = 3  # in a row: then there is nothing left to learn from the dev pairs


@dataclass(frozen=True)
class Progress:
    """Where training is: told after some steps, and after every epoch with the dev exact match it reached."""

    epoch: int
    epochs: int
    step: int  # of this epoch
    steps: int  # of it; where the time limit ends it, as many as there were
    done: float  # the share of all that is done, in [0, 1]
    loss: float  # mean of this epoch so far
    dev_exact_match: float | None  # of the last epoch that ended
    examples_per_second: float
    seconds_left: float
    notes: tuple[str, ...] = ()  # sentences for the person who waits, each told once
    member: str = ""  # which of several trainings this is, such as `member 2 of 5`


@dataclass(frozen=True)
class TrainResult:
    """What came of it."""

    best_dev_exact_match: float
    best_epoch: int
    epochs: int  # that were run
    ended: str  # why it ended, in words
    seconds: float
    parts: int
    not_covered: int  # pairs whose target is too long for the slots: they taught nothing
    parameters: int
    warnings: tuple[str, ...] = ()
    out_of_time: bool = False  # whether it was the time limit that ended it
    scores_fitted: bool = True  # whether there were enough dev pairs, not learned from, to fit scores on

    @property
    def learned_nothing(self) -> bool:
        """Whether no dev pair ever came out right, and in the end most outputs were the same."""
        return self.best_dev_exact_match == 0 and bool(self.warnings)


def train(
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    config: TrainConfig,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    files: Mapping[str, str] | None = None,
) -> TrainResult:
    """Train on pairs and leave the best model in the folder `out`.

    The best is that with the highest dev exact match, and of equals that with the highest dev log-probability. Where
    dev pairs are few, so that one epoch's figure is mostly chance, the mean of the last few epochs counts: as many as
    judge 500 pairs together, at most 9. Beside it there are `metrics.jsonl`, a line per epoch, and until training ends
    a checkpoint. With `resume` a run that was stopped goes on from there, and on the CPU ends with the same weights,
    bit for bit, as if it had not been stopped. A model that is in `out` already is replaced only with `overwrite`.
    Without dev pairs the first 1,000 training pairs take their place.

    `progress` may stop the run by an exception: what was learned until then is in the checkpoint. `files` are the names
    of what the pairs were read from, with the SHA-256 of each, for `config.json`.

    The same pairs and settings give the same model, as long as nobody else in the process draws torch's random numbers
    meanwhile: two trainings in two threads disturb each other, in two processes they do not.
    """
    folder, begun = Path(out), perf_counter()
    check_folder(folder, resume=resume, overwrite=overwrite)
    # Of several processes of one training, the first one writes.
    with (
        locked(folder) if Accelerator().is_main_process else nullcontext(),
        torch.random.fork_rng(),  # whoever calls has their random numbers as they were
    ):
        check_folder(folder, resume=resume, overwrite=overwrite)  # another training may just have ended
        return _train(Trainer(pairs, dev, config, files), folder, resume, progress or _nobody, begun)


def check_folder(out: Path, *, resume: bool, overwrite: bool, several: bool = False) -> None:
    """A `ModelError` where a training into this folder would cost somebody a model, or has nothing to resume.

    `several` says that it is one of several members.
    """
    if resume and overwrite:
        raise ValueError("resume continues a training and overwrite replaces it: choose one of them")
    if out.exists() and not out.is_dir():
        raise ModelError(f"{out} is a file: name a folder (--out)")
    has_model = (out / WEIGHTS).exists() or holds_members(out)
    of_one, of_several = (out / FILE).exists(), has_stopped_members(out)
    has_checkpoint = of_one or of_several
    way_out = "name another folder (--out), or replace what is there (--overwrite, overwrite=True)"
    if resume and has_model and not has_checkpoint:
        ended = read_config(out).get("result", {}).get("ended")
        why = f"holds a model whose training has ended ({ended})" if ended else "holds a model but no checkpoint"
        raise ModelError(f"{out} {why}, so there is nothing to resume: to train again, {way_out}")
    if resume and has_checkpoint and not (of_several if several else of_one):
        of, how = ("one model", "without --members (train)") if several else ("members", "by --members (train_members)")
        raise ModelError(f"{out} holds a training of {of} that was stopped: continue it {how}, {way_out}")
    names = (CARD, CONFIG, METRICS, *((MEMBERS, UNFINISHED) if several else ()))
    others = [name for name in names if (out / name).exists()]
    if not overwrite and others and not has_model and not has_checkpoint:
        raise ModelError(f"{out} has a {others[0]} that would be replaced: {way_out}")
    if not resume and not overwrite and (has_model or has_checkpoint):
        refuse_locked(out)  # a training that is running is not one that was stopped
        what = "a training that was stopped" if has_checkpoint else "a model already"
        go_on = "continue it (--resume, resume=True), " if has_checkpoint else ""
        raise ModelError(f"{out} holds {what}: {go_on}{way_out}")


def _train(
    trainer: Trainer, out: Path, resume: bool, progress: Callable[[Progress], None], begun: float
) -> TrainResult:
    """The loop; `begun` is when all of it was, which the time limit counts from."""
    settings, run = trainer.config, _begin(trainer, out, resume)
    started = begun - run.total_seconds

    def tell(now: Progress) -> None:
        try:
            progress(now)
        except BaseException:
            trainer.save_checkpoint(run, out)
            raise

    tell(replace(_progress(run, settings, len(trainer.steps(run.epoch))), notes=tuple(trainer.notes)))
    while run.step or not _ended(run, settings):  # an epoch that was begun is judged
        steps = trainer.steps(run.epoch)
        while run.step < len(steps) and _time_used(run, settings) < 1:
            begun = perf_counter()
            run.rate = _learning_rate(run, settings, settings.epochs * len(steps))
            random = Random(f"{settings.seed} {run.epoch} {run.step}")
            done = _done(run, settings, settings.epochs * len(steps))
            try:
                loss, counted = trainer.step(steps[run.step], run.rate, random, done)
            except FloatingPointError as error:
                raise FloatingPointError(_diverged(run, settings, error)) from None
            run.loss, run.counted = run.loss + loss, run.counted + counted
            run.merged, run.nodes = run.merged + trainer.merged, run.nodes + trainer.nodes
            run.step, run.total_steps = run.step + 1, run.total_steps + 1
            run.examples += sum(map(len, steps[run.step - 1]))
            run.seconds += perf_counter() - begun
            run.total_seconds = perf_counter() - started
            if run.total_steps % STEPS_BETWEEN_CHECKPOINTS == 0:
                trainer.save_checkpoint(run, out)
            if run.step < len(steps):
                tell(_progress(run, settings, len(steps)))
        warning = run.warning
        begun = perf_counter()
        run.dev, run.dev_log_probability, run.warning = trainer.evaluate()
        run.epoch += 1
        run.total_seconds = perf_counter() - started
        run.recent = [*run.recent, run.dev][-trainer.judged_together :]
        mean = sum(run.recent) / trainer.judged_together  # before there are so many epochs, the others count as 0
        if mean > run.best_mean:
            run.gained = run.epoch
        if (mean, run.dev_log_probability) > (run.best_mean, run.best_log_probability):
            run.best_mean, run.best_log_probability = mean, run.dev_log_probability
            run.best, run.best_epoch = run.dev, run.epoch
            trainer.save_model(run, out)
        run.perfect = run.perfect + 1 if run.dev == 1 else 0
        trainer.write_metrics(run, out)
        run.judging = perf_counter() - begun
        now = replace(_progress(run, settings, run.step), notes=_changed(warning, run.warning))
        run.step, run.loss, run.counted, run.merged, run.nodes = 0, 0.0, 0, 0, 0
        trainer.save_checkpoint(run, out)
        tell(now)
    ended = _ended(run, settings)
    trainer.finish(run, ended, out)
    return TrainResult(
        best_dev_exact_match=run.best,
        best_epoch=run.best_epoch,
        epochs=run.epoch,
        ended=ended,
        seconds=run.total_seconds,
        parts=settings.parts,
        not_covered=trainer.not_covered,
        parameters=sum(parameter.numel() for parameter in trainer.network.parameters()),
        warnings=(run.warning,) if run.warning else (),
        out_of_time=ended == out_of_time(settings),
        scores_fitted=trainer.scores_fitted,
    )


def _nobody(progress: Progress) -> None:
    """Hears of the progress where no one else does."""


def _begin(trainer: Trainer, out: Path, resume: bool) -> Run:
    """The run to continue, or a new one in a folder without traces of others."""
    if not resume or not (out / FILE).is_file():
        (out / FILE).unlink(missing_ok=True)
        if has_stopped_members(out):
            shutil.rmtree(out / UNFINISHED)
        return Run()
    state = load_checkpoint(out, trainer.network, trainer.average, trainer.optimizer)
    (before, pairs_before), (now, pairs_now) = json.loads(state["config"]), json.loads(trainer.identity)
    changed = [name for name in now if before.get(name) != now[name]] + ["pairs"] * (pairs_before != pairs_now)
    if changed:
        way_out = "give the same to continue it, or replace it (--overwrite, overwrite=True)"
        raise ModelError(f"the checkpoint in {out} was made with other {', '.join(changed)}: {way_out}")
    run, metrics = Run(**state["run"]), out / METRICS
    if metrics.is_file() and run.epoch:
        lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        metrics.write_text("".join(lines[: run.epoch]), encoding="utf-8")
    return run


def _ended(run: Run, config: Resolved) -> str:
    """Why there is no further epoch: it is not wanted, would be wasted, or is not allowed; empty while there is one."""
    if run.perfect >= PERFECT_EPOCHS:
        return f"all dev pairs were right in {PERFECT_EPOCHS} epochs in a row"
    if run.epoch >= config.epochs:
        return "all epochs are done"
    # Before anything is right, the exact match cannot tell whether something is being learned.
    if 0 < config.patience <= run.epoch - run.gained and run.best > 0:
        return f"no better dev exact match for {config.patience} epochs (patience)"
    return out_of_time(config) if _time_used(run, config) >= 1 else ""


def out_of_time(config: TrainConfig) -> str:
    """Why a training has ended that the time limit has; empty where there is none."""
    return "" if config.time_limit is None else f"the time limit of {config.time_limit:g} min is reached"


def _changed(before: str, warning: str) -> tuple[str, ...]:
    """What to say of a warning: it once, when it begins, and once that it is over."""
    if before and not warning:
        return ("the outputs are no longer collapsed",)
    return (f"warning: {warning}",) if warning and not before else ()


def _diverged(run: Run, config: Resolved, error: FloatingPointError) -> str:
    kept = f"the model of epoch {run.best_epoch} is kept" if run.best_epoch else "there is no model yet"
    rate = f"lower the learning rate, which is {config.learning_rate:g}"
    return f"in epoch {run.epoch + 1}, step {run.step + 1}, {error}: {rate} (--learning-rate); {kept}"


def _time_used(run: Run, config: TrainConfig) -> float:
    """The share of the time limit, with one more step, the last evaluation and the fitting of scores; 0 without any."""
    if config.time_limit is None:
        return 0.0
    still = run.seconds / max(run.total_steps, 1) + 2 * run.judging
    return (run.total_seconds + still) / (60 * config.time_limit)


def _done(run: Run, config: TrainConfig, steps: int) -> float:
    """The share of the run that is done, by steps or by time, whichever says more."""
    return min(max(run.total_steps / steps, _time_used(run, config)), 1.0)


def _learning_rate(run: Run, config: Resolved, steps: int) -> float:
    """Up in a line for the first part of the run, then down along half a cosine."""
    done = _done(run, config, steps)
    warm = (done + 1 / steps) / max(config.warmup, 1 / steps)
    return config.learning_rate * min(warm, 1.0) * max((1 + cos(pi * done)) / 2, 1e-3)


def _progress(run: Run, config: Resolved, steps: int) -> Progress:
    done = _done(run, config, steps * config.epochs)
    return Progress(
        epoch=min(run.epoch + 1, config.epochs) if run.step < steps else max(run.epoch, 1),
        epochs=config.epochs,
        step=run.step,
        steps=steps,
        done=done,
        loss=run.loss / max(run.counted, 1),
        dev_exact_match=run.dev,
        examples_per_second=run.examples / max(run.seconds, 1e-9),
        seconds_left=run.total_seconds * (1 - done) / max(done, 1e-9),
    )
