"""`grapheme train`: from a file of pairs to the folder of a model."""

import json
import os
from enum import StrEnum
from hashlib import file_digest
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grapheme_nn.cli.options import Columns, Device, SkipBadLines, name_of, read_data
from grapheme_nn.cli.sentences import Unusable, WrongUse, say
from grapheme_nn.cli.stopping import Stopped, Stopping
from grapheme_nn.data import Graph, Pair, Pairs, hold_out, overlap
from grapheme_nn.data.graphs import cut, shown
from grapheme_nn.data.write import FULL
from grapheme_nn.registry import MORPHS, OBJECTIVES

if TYPE_CHECKING:
    from grapheme_nn.config import TrainConfig

# The units as `graph` has them, which would take torch along.
Unit = StrEnum("Unit", ["codepoint", "cluster", "decomposed", "symbol"])
LONGEST_LINE = 2_000  # of a command that is shown
Preset = StrEnum("Preset", ["small", "base"])


def train(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Pairs, a file or a folder: TSV, CSV or JSONL; of graphs, JSONL; - is the standard input.",
            show_default=False,
        ),
    ],
    dev: Annotated[Path | None, typer.Option(metavar="FILE", help="Pairs to choose the best model by.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the model goes; without it, runs/NAME-OF-DATA.")
    ] = None,
    columns: Columns = None,
    preset: Annotated[Preset, typer.Option(help="small learns on a laptop; base wants a GPU.")] = Preset.small,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings that replace the preset's; options win.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"What is learned from: {', '.join(OBJECTIVES)}.")
    ] = None,
    morph: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=f"What the network does, in order, of {', '.join(MORPHS)}."),
    ] = None,
    input_unit: Annotated[Unit | None, typer.Option(help="What a node of the input is, where that is text.")] = None,
    target_unit: Annotated[Unit | None, typer.Option(help="What a node of the target is, where that is text.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="How often every pair is seen.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for so long and no longer.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pairs a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest, after warm-up.")] = None,
    device: Device = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same model, unless time ends it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a training that was ended early.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model that is in FOLDER.")] = False,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Learn from pairs of texts or graphs, and write a folder with the model.

    Example: grapheme train pairs.tsv --dev dev.tsv --out model
    """
    if out is None and str(data) == "-":
        raise WrongUse("the standard input has no name to call the folder of the model by: name one with --out")
    if str(data) == str(dev) == "-":
        raise WrongUse("the standard input is either DATA or --dev: give a file as one of them")
    out = out or Path("runs") / data.stem
    if resume and overwrite:
        raise WrongUse("--resume continues a training and --overwrite replaces it: choose one of them")
    if minutes is not None and not minutes > 0:
        raise WrongUse(f"--minutes must be above 0, but is {minutes:g}")
    pairs: list[Pair]
    held: list[Pair] | None
    pairs, files = _read(data, columns, skip_bad_lines)
    held, held_files = (None, []) if dev is None else _read(dev, columns, skip_bad_lines)
    from grapheme_nn.cli.config import resolve
    from grapheme_nn.training import check_folder

    check_folder(out, resume=resume, overwrite=overwrite)
    if device is not None:
        from grapheme_nn.cli.models import find_device

        os.environ["ACCELERATE_TORCH_DEVICE"] = find_device(device)  # what Accelerate takes in place of its own choice

    options = {
        "loss": loss,
        "morphs": None if morph is None else tuple(name.strip() for name in morph.split(",") if name.strip()),
        "input_unit": input_unit,
        "target_unit": target_unit,
        "epochs": epochs,
        "time_limit": minutes,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    settings = resolve(preset, config, {name: _plain(value) for name, value in options.items()})
    if held is None:
        pairs, held = _held_out(name_of(data), pairs, settings.seed)
    elif dev is not None and (shared := overlap(pairs, held)):
        both = f"{shared:,} of {len(held):,} pairs of {name_of(dev)} are in {name_of(data)} too"
        say(f"warning: {both}, so the dev figures flatter")
    how = {"resume": resume, "overwrite": overwrite, "files": _digests([*files, *held_files])}
    if resume and not (out / "checkpoint.safetensors").exists():
        say(f"there is nothing to resume in {out}: training begins")
    _run(pairs, held, settings, out, how)


def _run(pairs: list[Pair], dev: list[Pair], settings: "TrainConfig", out: Path, how: dict[str, Any]) -> None:
    from grapheme_nn.checkpoint import FILE
    from grapheme_nn.cli.progress import Report
    from grapheme_nn.model_folder import ModelError
    from grapheme_nn.training import Progress
    from grapheme_nn.training import train as train_model

    def progress(now: Progress) -> None:
        report(now)
        stopping.check()

    try:
        with Report() as report, Stopping() as stopping:
            result = train_model(pairs, dev, settings, out, progress=progress, **how)
    except ModelError:
        raise
    except (ValueError, FloatingPointError) as error:
        raise Unusable(f"these settings do not work: {error}") from None
    except OSError as error:
        way_out = "make room" if error.errno in FULL else "name a folder that can be written with --out"
        sentence = f"{out} cannot be written ({error.strerror}): {way_out}; a model that was there is as it was"
        raise Unusable(sentence) from None
    except (Stopped, KeyboardInterrupt) as stop:
        continues = f"the same command with --resume continues from what is in {out}"
        say(f"stopped: {continues if (out / FILE).exists() else 'nothing was learned yet'}")
        raise typer.Exit(stop.code if isinstance(stop, Stopped) else 130) from None
    if result.best_dev_exact_match == 0:
        epochs = f"{result.epochs} epoch{'s' * (result.epochs > 1)} ({result.ended})"
        more = "more minutes (--minutes)" if result.out_of_time else "more epochs (--epochs)"
        sentence = (
            f"nothing came out right: not one of {len(dev):,} dev pairs in {epochs}; "
            f"look at the pairs, or give it {more}; the model is in {out} all the same"
        )
        if result.learned_nothing:
            raise Unusable(sentence)
        say(sentence)
        return
    say(
        f"ended after {result.seconds:,.0f} s: {result.ended}; dev exact match {result.best_dev_exact_match:.2%} in "
        f"epoch {result.best_epoch} of {result.epochs}, {result.parameters:,} parameters: the model is in {out}"
    )
    if not result.scores_fitted:
        say("scores are not fitted, for there are too few dev pairs that were not learned from: take them as an order")
    say(f"use it: {_use(pairs, out)}")


def _use(pairs: list[Pair], out: Path) -> str:
    """A command that tries the model."""
    pair = pairs[0]
    if isinstance(pair.input, Graph):
        pair = min(pairs, key=lambda pair: len(pair.input.nodes) if isinstance(pair.input, Graph) else 0)
        line = json.dumps(_json_input(pair), ensure_ascii=False)
        if len(line) > LONGEST_LINE:
            return f"grapheme predict {quote(str(out))} FILE.jsonl"
        return f"printf '%s\\n' {quote(line)} | grapheme predict {quote(str(out))}"
    if len(pair.input) > LONGEST_LINE:
        return f"grapheme predict {quote(str(out))} FILE"
    if pair.features:
        values = f"{quote(pair.input)} {quote(';'.join(pair.features))}"
        return f"printf '%s\\t%s\\n' {values} | grapheme predict {quote(str(out))} --columns input,features"
    echo = "printf '%s\\n'" if pair.input[0] == "-" or "\\" in pair.input else "echo"
    return f"{echo} {quote(pair.input)} | grapheme predict {quote(str(out))}"


def _json_input(pair: Pair) -> dict[str, Any]:
    """What a line for `predict` says: a graph by itself, or with its features."""
    assert isinstance(pair.input, Graph)
    graph = pair.input.as_dict()
    return {"input": graph, "features": list(pair.features)} if pair.features else graph


def _held_out(data: str, pairs: list[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    try:
        rest, held = hold_out(pairs, seed=seed)
    except ValueError as error:
        raise Unusable(f"{data}: {error}, or name a file with --dev") from None
    if len(rest) == len(pairs):
        same = "all of them are learned from, and the figures are those of the same pairs"
        say(f"no --dev, and only {len(pairs)} pairs: {same}")
    else:
        say(f"no --dev: {len(held):,} of the pairs are held out (seed {seed}) to choose the best model by")
    return rest, held


def _read(file: Path, columns: str | None, skip_bad_lines: bool) -> tuple[Pairs, list[Path]]:
    """The pairs, and the files that they are from."""
    pairs = read_data(file, columns, skip_bad_lines)
    features = {unit for pair in pairs for unit in pair.features}
    with_features = f" with {len(features):,} different features" if features else ""
    say(f"{name_of(file)}: {len(pairs):,} pairs{with_features}, such as {_shown(pairs[0])}")
    return pairs, [Path(name) for name in pairs.files]


def _shown(pair: Pair) -> str:
    features = f" ({cut(' '.join(pair.features))})" if pair.features else ""
    given, wanted = (_side(side) for side in pair[:2])
    return f"{given}{features} -> {wanted}"


def _side(side: str | Graph) -> str:
    from grapheme_nn.drawing import preview

    return preview(side) if isinstance(side, Graph) else shown(side)


def _digests(files: list[Path]) -> dict[str, str]:
    """The SHA-256 of each file by its name; empty of what can be read but once."""
    digests = {}
    for path in files:
        digests[path.name] = ""
        if path.is_file():
            with path.open("rb") as file:
                digests[path.name] = file_digest(file, "sha256").hexdigest()
    return digests


def _plain(value: object) -> object:
    return str(value) if isinstance(value, StrEnum) else value
