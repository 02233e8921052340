"""Training of several members: they are left as an ensemble that votes, or distilled into one model."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil
from multiprocessing import current_process
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator

from grapheme_nn.calibration import Calibration
from grapheme_nn.card import ensemble_card
from grapheme_nn.checkpoint import FILE, PLAN, UNFINISHED, has_stopped_members
from grapheme_nn.config import TrainConfig
from grapheme_nn.data import Graph, Pair
from grapheme_nn.distil import check_texts, distil_members
from grapheme_nn.ensemble import Ensemble
from grapheme_nn.folder_lock import locked
from grapheme_nn.isomorphism import is_same
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.model_folder import (
    CARD,
    CONFIG,
    MEMBERS,
    WEIGHTS,
    ModelError,
    read_config,
    replace_files,
    write_ensemble,
)
from grapheme_nn.resolve import checked_pairs
from grapheme_nn.side_by_side import Job, run_jobs
from grapheme_nn.trainer import METRICS, Trainer, collapse
from grapheme_nn.training import Progress, TrainResult, check_folder, out_of_time

LOSSES = ("path", "monotone")  # that members take turns with: models that err in other places vote better
SEEDS = 1000  # members' seeds begin at so many times the seed


@dataclass(frozen=True)
class EnsembleResult:
    """What came of the training of several members that vote."""

    best_dev_exact_match: float  # of the vote
    members: tuple[float, ...]  # of each by itself
    ended: str  # why it ended, in words
    seconds: float
    parameters: int  # of all
    warnings: tuple[str, ...] = ()
    out_of_time: bool = False  # whether it was the time limit that ended any of them
    scores_fitted: bool = True  # whether there were enough dev pairs, not learned from, to fit scores on

    @property
    def learned_nothing(self) -> bool:
        """Whether the vote got no dev pair right, and most of its outputs were the same."""
        return self.best_dev_exact_match == 0 and bool(self.warnings)


def train_members(
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    config: TrainConfig,
    out: str | PathLike[str],
    *,
    members: int,
    distil: bool = False,
    words: Sequence[str | Pair] = (),
    jobs: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    files: Mapping[str, str] | None = None,
) -> EnsembleResult | TrainResult:
    """Train several models on pairs, and leave them in the folder `out` as an ensemble that votes.

    Their seeds are `1000 * config.seed` and those after it. Where `config.loss` is open and targets are texts, they
    take turns with the losses `path` and `monotone`. So many `jobs` are trained side by side, by default as many as
    there are cores; several are in processes that are spawned, so a script must have `if __name__ == "__main__":`.
    `config.time_limit` is shared by those that follow each other.

    With `distil` (of texts alone) their votes on new inputs, made of old ones (`splice`), and on `words`, inputs
    without answers, teach one model together with the pairs; that is left, and the members are removed.

    All else is as `train` has it. Until all is trained it is in `out/unfinished`, from where `resume` goes on: members
    that have ended are kept. A model that is in `out` is replaced in the end.
    """
    folder, begun = Path(out), perf_counter()
    if getattr(current_process(), "_inheriting", False):  # a member's process that is reading the script again
        raise RuntimeError('put what trains members below if __name__ == "__main__":, or give jobs=1')
    if type(members) is not int or members < 2:
        raise ValueError(f"members must be a whole number of at least 2, but is {members!r}")
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise ValueError(f"jobs must be a whole number of at least 1, but is {jobs!r}")
    if config.seed >= 2**63 // SEEDS:
        raise ValueError(f"seed must be below {2**63 // SEEDS:,} where there are members, but is {config.seed:,}")
    if Accelerator().num_processes > 1:
        raise ValueError("members are trained by one process, which starts others: start it without accelerate launch")
    check_folder(folder, resume=resume, overwrite=overwrite, several=True)
    pairs, dev = checked_pairs(pairs), checked_pairs(dev)
    distil = distil or bool(words)
    asked = check_texts(pairs, words) if distil else []
    at_once = min(jobs or _cores(), members)
    shares = ceil(members / at_once) + distil  # trainings one after the other
    limit = None if config.time_limit is None else config.time_limit / shares
    config = replace(config, time_limit=limit)
    configs = [member_config(config, number, pairs) for number in range(members)]
    with locked(folder):
        check_folder(folder, resume=resume, overwrite=overwrite, several=True)
        with torch.random.fork_rng():
            trainer = Trainer(pairs, dev, configs[0], files)  # what does not work is known before anything is begun
        unfinished = folder / UNFINISHED
        _begin(folder, _plan(trainer, members, distil, asked), resume)
        tell = _teller(trainer.notes, progress)
        every = [
            Job(f"member {number} of {members}", pairs, dev, config, unfinished / str(number), files)
            for number, config in enumerate(configs, 1)
        ]
        try:
            run_jobs([job for job in every if not _has_ended(job.folder)], at_once, tell)
            if distil:
                made = [job.folder for job in every]
                result = distil_members(made, trainer, config, asked, unfinished / "distilled", tell)
                _leave(folder, unfinished / "distilled")
                return replace(result, seconds=perf_counter() - begun)
            return _leave_ensemble(folder, trainer, every, begun)
        finally:
            _forget(unfinished)


def _cores() -> int:
    """As many as this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def member_config(config: TrainConfig, number: int, pairs: Sequence[Pair]) -> TrainConfig:
    """The settings of a member, numbered from 0."""
    loss = config.loss
    if loss is None and pairs and not isinstance(pairs[0].target, Graph):
        loss = LOSSES[number % len(LOSSES)]
    return replace(config, seed=SEEDS * config.seed + number, loss=loss)


def _plan(trainer: Trainer, members: int, distil: bool, words: Sequence[Pair]) -> dict[str, Any]:
    """What is trained, by what must be the same to continue it."""
    settings: dict[str, Any]
    settings, pairs = json.loads(trainer.identity)
    digest = sha256(repr(words).encode("utf-8", "surrogatepass")).hexdigest()
    return settings | {"pairs": pairs, "members": members, "distil": distil, "words": digest}


def _begin(out: Path, plan: dict[str, Any], resume: bool) -> None:
    """Make the folder of the members, without traces of others, or see that it is that of the same training."""
    unfinished = out / UNFINISHED
    if resume and has_stopped_members(out):
        try:
            before = json.loads((unfinished / PLAN).read_text(encoding="utf-8"))
            changed = [name for name in plan if before.get(name) != plan[name]]
        except (ValueError, AttributeError) as error:
            raise ModelError(f"{unfinished / PLAN} is damaged ({error}): train without resuming") from None
        if changed:
            way_out = "give the same to continue it, or replace it (--overwrite, overwrite=True)"
            raise ModelError(f"the training in {out} was begun with other {', '.join(changed)}: {way_out}")
        return
    _remove(unfinished)
    (out / FILE).unlink(missing_ok=True)
    replace_files(unfinished, {PLAN: json.dumps(plan).encode()})


def _teller(common: Sequence[str], progress: Callable[[Progress], None] | None) -> Callable[[str, Progress], None]:
    """Tells of the progress of each; notes that are common to all are told once, others with the name."""
    told: set[str] = set()

    def tell(name: str, now: Progress) -> None:
        new = [note if note in common else f"{name}: {note}" for note in now.notes if note not in told]
        told.update(note for note in now.notes if note in common)
        if progress is not None:
            progress(replace(now, member=name, notes=tuple(new)))

    return tell


def _has_ended(folder: Path) -> bool:
    """Whether the training of a member has; a stop may have been at any time."""
    has_all = (folder / WEIGHTS).exists() and not (folder / FILE).exists()
    return has_all and bool(read_config(folder).get("result", {}).get("ended"))


def _leave_ensemble(out: Path, trainer: Trainer, jobs: Sequence[Job], begun: float) -> EnsembleResult:
    """Fit the scores of the vote, and put the members where they belong."""
    device = trainer.accelerator.device
    ensemble = Ensemble([GraphTransformNet.load(job.folder, device=device) for job in jobs], Calibration())
    has_features = bool(trainer.network.config.features)
    features = [pair.features for pair in trainer.dev] if has_features else None
    outputs = ensemble.transform([pair.input for pair in trainer.dev], features=features)
    wanted = [pair.target for pair in trainer.dev]
    right = sum(is_same(output, target) for output, target in zip(outputs, wanted, strict=True)) / len(wanted)
    slope, offset = trainer.calibration(ensemble)
    results = [read_config(job.folder)["result"] for job in jobs]
    was_cut = any(each["ended"] == out_of_time(job.config) for each, job in zip(results, jobs, strict=True))
    result: dict[str, Any] = {
        "best_dev_exact_match": right,
        "members": [each["best_dev_exact_match"] for each in results],
        "ended": f"all {len(jobs)} members are trained{', until their time was up' if was_cut else ''}",
    }
    config = {
        "members": [f"{MEMBERS}/{job.folder.name}" for job in jobs],
        "weights": [read_config(job.folder)["weights"] for job in jobs],
        "score_slope": slope,
        "score_offset": offset,
        "data": trainer.data,
        "result": result,
    }
    card = ensemble_card(trainer.config, trainer.pairs, trainer.dev, bool(trainer.held_out), result)
    # If this is interrupted, the plan is still there, and resuming does the same again.
    write_ensemble(out, config, card)
    _remove(out / MEMBERS)
    os.replace(out / UNFINISHED, out / MEMBERS)
    for file in (f"{MEMBERS}/{PLAN}", WEIGHTS, METRICS):
        (out / file).unlink(missing_ok=True)
    return EnsembleResult(
        best_dev_exact_match=right,
        members=tuple(result["members"]),
        ended=result["ended"],
        seconds=perf_counter() - begun,
        parameters=sum(weight.numel() for model in ensemble.models for weight in model.parameters()),
        warnings=tuple(filter(None, [collapse(outputs, wanted)])),
        out_of_time=was_cut,
        scores_fitted=trainer.scores_fitted,
    )


def _leave(out: Path, model: Path) -> None:
    """Put a model where it belongs, and remove what it was made of."""
    replace_files(out, {name: (model / name).read_bytes() for name in (WEIGHTS, CONFIG, CARD, METRICS)})
    _remove(out / MEMBERS)
    _remove(out / UNFINISHED)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _forget(unfinished: Path) -> None:
    """Remove the folder of members of which none has learned anything: there is nothing to resume."""
    if unfinished.exists() and not any((one / FILE).exists() or _has_ended(one) for one in unfinished.iterdir()):
        shutil.rmtree(unfinished)
