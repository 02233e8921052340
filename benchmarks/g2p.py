"""Error rates over all languages of a folder, several seeds, published figures beside: how a recipe is judged.

    python benchmarks/g2p.py ../shared/g2p --seeds 3                    # all languages, one after the other
    python benchmarks/g2p.py ../shared/g2p --jobs 12 --out a.jsonl      # side by side, one thread each
    python benchmarks/g2p.py ../shared/inflection --folds 5             # cross-validation, however large the files
    python benchmarks/g2p.py ../shared/g2p --set dropout=0.3 epochs=40  # another recipe
    python benchmarks/g2p.py ../shared/g2p --members 5 --distil         # members, their vote, and what it teaches

A language is a pair of files, `NAME_train.tsv` and `NAME_dev.tsv` or `NAME.train.tsv` and `NAME.dev.tsv`: input and
target, or input, features and target. A model is trained by the defaults and judged by its error on dev, which also
chose it.

Where a language has no more than 1,000 pairs, or with `--folds`, dev pairs are too few to choose and to judge by. There
training and dev pairs together are cut into folds that share no input (so of inflection no lemma): each is judged by
models that were trained on the others, of which a ninth chose the epoch.

With `--members` each model is trained so often, as `grapheme train --members` does, and judged by itself; then their
vote is, and with `--distil` one model that is taught by it. `--models` keeps all of them.

Every run is a line of `--out`, and what is there already is not run again, so that a run can be stopped and continued.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from grapheme_nn.data import Pair, read_pairs

SMALL = 1_000  # pairs, for training and dev together
FOLDS = 5
# Word error rate on dev of the ensemble of ten neural transducers, SIGMORPHON 2021 task 1 (Ashby et al., 2021).
PUBLISHED = {
    "arm_e": 4.5, "bul": 8.3, "dut": 10.8, "fre": 7.4, "hun": 1.5, "kor": 18.4,
    "gre": 5.0, "ice": 11.0, "ita": 22.0, "rum": 10.0,
}  # fmt: skip


class Job(NamedTuple):
    """One model, or a vote: a language, a seed, and where there are folds the one that judges it."""

    language: str
    train: str
    dev: str
    seed: int
    fold: int | None
    folds: int
    settings: dict[str, Any]
    kind: str = "single"  # or "member 0" and so on, "vote", "distilled"
    members: int = 0
    models: str = ""  # where models are kept

    @property
    def row(self) -> dict[str, Any]:
        """What says which run this is."""
        kept = ("language", "seed", "fold", "folds", "settings", "kind", "members")
        return {name: getattr(self, name) for name in kept}

    @property
    def key(self) -> str:
        return json.dumps(self.row, sort_keys=True)

    def folder(self, kind: str) -> Path:
        """Of the model of this kind."""
        fold = "" if self.fold is None else f"-{self.fold}"
        return Path(self.models) / f"{self.language}-{self.seed}{fold}" / kind.replace(" ", "-")


def languages(folder: Path) -> dict[str, tuple[Path, Path]]:
    """The training and dev files of each language of a folder."""
    found = {}
    for mark in ("_", "."):
        for file in sorted(folder.glob(f"*{mark}train.tsv")):
            name = file.name.removesuffix(f"{mark}train.tsv")
            dev = folder / f"{name}{mark}dev.tsv"
            if dev.exists():
                found[name] = file, dev
    return found


def read(file: str) -> list[Pair]:
    """Pairs of two columns, or of three with the features in the middle."""
    with open(file, encoding="utf-8") as lines:
        three = next(lines).count("\t") == 2
    return list(read_pairs(file, columns="input,features,target" if three else "input,target"))


def fold_of(pairs: Sequence[Pair], folds: int, fold: int) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Pairs to train on, to choose by and to judge by, which share no input; the same folds for every seed."""
    inputs = list(dict.fromkeys(pair.input for pair in pairs))
    Random(0).shuffle(inputs)
    judge = set(inputs[fold::folds])
    rest = [name for name in inputs if name not in judge]
    choose = set(rest[::9])
    parts: tuple[list[Pair], list[Pair], list[Pair]] = ([], [], [])
    for pair in pairs:
        parts[2 if pair.input in judge else 1 if pair.input in choose else 0].append(pair)
    return parts


def run(job: Job) -> dict[str, Any]:
    """Train and judge one model, or judge a vote."""
    import torch

    from grapheme_nn import TrainConfig
    from grapheme_nn.calibration import calibration_error
    from grapheme_nn.data import Graph

    torch.set_num_threads(1)
    pairs, dev = read(job.train), read(job.dev)
    judge = dev
    if job.fold is not None:
        pairs, dev, judge = fold_of(pairs + dev, job.folds, job.fold)
    begun = perf_counter()
    model = made_model(job, pairs, dev, TrainConfig(seed=job.seed, **job.settings))
    seconds = perf_counter() - begun
    features = [pair.features for pair in judge] if any(pair.features for pair in pairs) else None
    made, scores = model.transform([pair.input for pair in judge], features=features, return_scores=True)
    wanted: list[str | Graph] = [pair.target for pair in judge]
    right = [output == target for output, target in zip(made, model.as_targets(wanted), strict=True)]
    return job.row | {
        "error": 100 * (1 - mean(right)),
        "calibration_error": calibration_error(scores, right),
        "seconds": seconds,
    }


def made_model(job: Job, pairs: list[Pair], dev: list[Pair], config: Any) -> Any:
    """The model of a job, which is trained, or the ensemble of its members."""
    from grapheme_nn import Ensemble, GraphTransformNet
    from grapheme_nn.calibration import Calibration, fit_calibration
    from grapheme_nn.distil import distil_members
    from grapheme_nn.members import member_config
    from grapheme_nn.side_by_side import Job as Training
    from grapheme_nn.trainer import Trainer

    with TemporaryDirectory() as temporary:
        job = job if job.models else job._replace(models=temporary)
        members = [job.folder(f"member {number}") for number in range(job.members)]
        if job.kind == "vote":
            models = [GraphTransformNet.load(member) for member in members]
            features = [pair.features for pair in dev] if models[0].config.features else None
            ensemble = Ensemble(models, Calibration())
            made, scores = ensemble.transform([pair.input for pair in dev], features=features, return_scores=True)
            wanted = ensemble.as_targets([pair.target for pair in dev])
            right = [output == target for output, target in zip(made, wanted, strict=True)]
            return Ensemble(models, fit_calibration(scores, right))
        folder = job.folder(job.kind)
        if job.kind == "distilled":
            distil_members(members, Trainer(pairs, dev, config), config, [], folder, lambda name, now: None)
        else:
            if job.members:
                config = member_config(config, int(job.kind.split()[1]), pairs)
            Training(job.kind, pairs, dev, config, folder).run(lambda now: None)  # one that was stopped goes on
        return GraphTransformNet.load(folder)


def jobs_of(chosen: argparse.Namespace) -> list[Job]:
    settings = tomllib.loads("\n".join(chosen.set))
    jobs = []
    for name, files in languages(chosen.folder).items():
        if chosen.languages and name not in chosen.languages:
            continue
        train, dev = map(str, files)
        folds = chosen.folds or (FOLDS if len(read(train)) + len(read(dev)) <= SMALL else 0)
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
            for fold in range(folds) if folds else [None]:
                one = Job(name, train, dev, seed, fold, folds, settings, "single", chosen.members, chosen.models)
                kinds = [f"member {number}" for number in range(chosen.members)] + ["vote"]
                kinds = (kinds + ["distilled"] * chosen.distil) if chosen.members else ["single"]
                jobs += [one._replace(kind=kind) for kind in kinds]
    return jobs


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Mean error of each language over seeds, of folds over all their inputs, with its standard error over seeds."""
    lines = []
    for kind in dict.fromkeys(kind_of(row) for row in rows):
        chosen = [row for row in rows if kind_of(row) == kind]
        head = f"{kind:12} {'error':>7} {'±':>5} {'published':>9} {'calibration':>11} {'seconds':>8}  runs"
        means: dict[bool, list[float]] = {}
        lines += [*([""] if lines else []), head]
        for name in dict.fromkeys(row["language"] for row in chosen):
            own = [row for row in chosen if row["language"] == name]
            by_seed = [
                mean(row["error"] for row in own if row["seed"] == seed) for seed in {row["seed"] for row in own}
            ]
            spread = stdev(by_seed) / sqrt(len(by_seed)) if len(by_seed) > 1 else float("nan")
            means.setdefault(own[0]["fold"] is not None, []).append(mean(by_seed))
            published = f"{PUBLISHED[name]:9.1f}" if name in PUBLISHED else " " * 9
            figures = (
                f"{mean(row['calibration_error'] for row in own):11.3f} {mean(row['seconds'] for row in own):8.0f}"
            )
            lines.append(f"{name:12} {mean(by_seed):7.2f} {spread:5.2f} {published} {figures}  {len(own)}")
        for folded, values in means.items():
            lines.append(f"{'mean, folds' if folded else 'mean, dev':12} {mean(values):7.2f}")
    return "\n".join(lines)


def kind_of(row: dict[str, Any]) -> str:
    """Members are judged together."""
    return str(row["kind"]).split()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--folds", type=int, default=0, help="cross-validation for all languages, not only small ones")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side, one thread each")
    parser.add_argument("--gpu", action="store_true", help="train on the GPU, where there is one")
    parser.add_argument("--members", type=int, default=0, help="models that vote")
    parser.add_argument("--distil", action="store_true", help="teach one model by the vote")
    parser.add_argument("--models", default="", help="a folder to keep models in")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of TrainConfig, as TOML")
    parser.add_argument("--out", type=Path, help="a line of JSON for each run; those that are there are not run again")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not chosen.gpu:
        os.environ["ACCELERATE_USE_CPU"] = "true"
    if chosen.members and chosen.out and not chosen.models:
        sys.exit("--members with --out needs --models FOLDER: a vote that is continued needs its members")
    jobs = jobs_of(chosen)
    if not jobs:
        sys.exit(f"{chosen.folder} has no NAME_train.tsv with a NAME_dev.tsv beside it")
    wanted = {job.key: job for job in jobs}
    done: list[dict[str, Any]] = []
    if chosen.out and chosen.out.exists():
        for row in map(json.loads, chosen.out.read_text(encoding="utf-8").splitlines()):
            key = json.dumps({name: row[name] for name in jobs[0].row}, sort_keys=True)
            if wanted.pop(key, None):
                done.append(row)
    with TemporaryDirectory() as temporary, ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        keep = chosen.models or (temporary if chosen.members else "")
        for needs_members in (False, True):  # votes come after all members
            now = [job._replace(models=keep) for job in wanted.values()]
            now = [job for job in now if (job.kind in ("vote", "distilled")) == needs_members]
            for future in as_completed([pool.submit(run, job) for job in now]):
                done.append(future.result())
                if chosen.out:
                    with chosen.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(done[-1]) + "\n")
                print(json.dumps(done[-1]), file=sys.stderr, flush=True)
    print(table(sorted(done, key=lambda row: (row["kind"], row["fold"] is not None, row["language"], row["seed"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
