"""`grapheme train`: from a file of pairs to the folder of a model."""

import os
import sys
from enum import StrEnum
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grapheme_nn.cli.options import Columns, Device, SkipBadLines, name_of, read_data
from grapheme_nn.cli.sentences import Unusable, WrongUse, say
from grapheme_nn.cli.stopping import Stopped, Stopping
from grapheme_nn.data import Graph, Pair, Pairs, hold_out, overlap, read_inputs
from grapheme_nn.data.graphs import cut, shown
from grapheme_nn.data.write import FULL
from grapheme_nn.registry import MORPHS, OBJECTIVES

if TYPE_CHECKING:
    from grapheme_nn.config import TrainConfig

# The units as `graph` has them, which would take torch along.
Unit = StrEnum("Unit", ["codepoint", "cluster", "decomposed", "symbol"])
MEMBERS = 5  # of which one model is distilled, if it is not said
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
    minutes: Annotated[float | None, typer.Option(help="Learn for so long and no longer; members share it.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pairs a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest, after warm-up.")] = None,
    members: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Train N models, side by side on all cores, that vote.")
    ] = None,
    distil: Annotated[
        bool, typer.Option("--distil", help="Train one model on the votes of members (5, if N is not given).")
    ] = False,
    words: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Inputs without answers to vote on; means --distil.")
    ] = None,
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
    asked = [] if words is None else _read_words(words, columns, skip_bad_lines)
    distil = distil or words is not None
    members = members or (MEMBERS if distil else None)
    from grapheme_nn.checkpoint import has_stopped
    from grapheme_nn.cli.config import resolve
    from grapheme_nn.training import check_folder

    check_folder(out, resume=resume, overwrite=overwrite, several=members is not None)
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
    files += [*held_files, *([] if words is None else [words])]
    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "files": _digests(files)}
    if members is not None:
        how |= {"members": members, "distil": distil, "words": asked}
    if resume and not has_stopped(out):
        say(f"there is nothing to resume in {out}: training begins")
    _run(pairs, held, settings, out, how)


def _run(pairs: list[Pair], dev: list[Pair], settings: "TrainConfig", out: Path, how: dict[str, Any]) -> None:
    from grapheme_nn.checkpoint import has_stopped
    from grapheme_nn.cli.progress import Report
    from grapheme_nn.cli.trained import tell_result
    from grapheme_nn.members import train_members
    from grapheme_nn.model_folder import ModelError
    from grapheme_nn.side_by_side import MemberDied
    from grapheme_nn.training import Progress
    from grapheme_nn.training import train as train_model

    def progress(now: Progress) -> None:
        report(now)
        stopping.check()

    try:
        with Report() as report, Stopping() as stopping:
            train_them: Any = train_members if "members" in how else train_model
            result = train_them(pairs, dev, settings, out, progress=progress, **how)
    except ModelError:
        raise
    except MemberDied as error:
        raise Unusable(str(error)) from None
    except (ValueError, FloatingPointError) as error:
        raise Unusable(f"these settings do not work: {error}") from None
    except OSError as error:
        way_out = "make room" if error.errno in FULL else "name a folder that can be written with --out"
        sentence = f"{out} cannot be written ({error.strerror}): {way_out}; a model that was there is as it was"
        raise Unusable(sentence) from None
    except (Stopped, KeyboardInterrupt) as stop:
        instead = " in place of --overwrite" if how["overwrite"] else ""
        continues = f"the same command with --resume{instead} continues from what is in {out}"
        say(f"stopped: {continues if has_stopped(out) else 'nothing was learned yet'}")
        raise typer.Exit(stop.code if isinstance(stop, Stopped) else 130) from None
    tell_result(result, pairs, dev, out)


def _read_words(file: Path, columns: str | None, skip_bad_lines: bool) -> Pairs:
    """Inputs without answers."""
    words = read_inputs(sys.stdin.buffer if str(file) == "-" else file, columns=columns, skip_bad_lines=skip_bad_lines)
    if told := words.report():
        say(told)
    say(f"{name_of(file)}: {len(words):,} inputs without answers")
    return words


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
