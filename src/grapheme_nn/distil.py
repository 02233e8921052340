"""Distillation: one model learns from pairs, and from the votes of several models on inputs that have no answers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from time import perf_counter
from typing import Any

from grapheme_nn.card import model_card
from grapheme_nn.config import Resolved, TrainConfig
from grapheme_nn.data import Pair
from grapheme_nn.data.pairs import is_empty
from grapheme_nn.ensemble import Ensemble
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.model_folder import read_config, replace_files, update_folder
from grapheme_nn.normalization import normalized
from grapheme_nn.side_by_side import Job
from grapheme_nn.splice import splice
from grapheme_nn.trainer import Trainer
from grapheme_nn.training import Progress, TrainResult

SPLICED = 4  # new inputs for every training pair,
MOST_SPLICED = 40_000  # and so many at most
VOTED = 1_000  # inputs between two words of progress
NAME, VOTES = "distilled model", "votes.json"
DECIDED = ("input_unit", "target_unit", "input_normalization", "target_normalization")  # as the members have them

Tell = Callable[[str, Progress], None]


def check_texts(pairs: Sequence[Pair], words: Sequence[str | Pair]) -> list[Pair]:
    """The words as pairs whose target is empty, without those that are; graphs and missing features are refused."""
    given = [word if isinstance(word, Pair) else Pair(word, "") for word in words]
    sides = [side for pair in pairs for side in pair[:2]] + [word.input for word in given]
    if not all(isinstance(side, str) for side in sides):
        raise ValueError("only texts can be distilled, but there are graphs: leave out --distil (distil=True) and vote")
    has_features = any(pair.features for pair in pairs)
    if has_features and given and not any(word.features for word in given):
        raise ValueError("the pairs have features, but the words have none: add a column of them")
    return [Pair(word.input, "", word.features if has_features else ()) for word in given if not is_empty(word.input)]


def distil_members(
    members: Sequence[Path], trainer: Trainer, config: TrainConfig, words: Sequence[Pair], out: Path, tell: Tell
) -> TrainResult:
    """Train one model on the pairs of `trainer` and on votes of the members in these folders; it is left in `out`.

    The members vote on new inputs made of the pairs' own, and on `words`, which are inputs without answers.
    """
    votes = out.with_name(VOTES)
    if not votes.exists():
        found = _votes(members, trainer, _inputs(trainer, config.seed, words), tell)
        replace_files(votes.parent, {VOTES: json.dumps(found).encode()})
    taught = [Pair(given, made, tuple(features)) for given, made, features in json.loads(votes.read_bytes())]
    config = replace(config, **{name: getattr(trainer.config, name) for name in DECIDED})
    job = Job(NAME, [*trainer.pairs, *taught], trainer.dev, config, out, trainer.files)
    result = job.run(lambda now: tell(NAME, now))
    said = read_config(out)
    settings = Resolved(**(said["training"] | {"morphs": tuple(said["training"]["morphs"])}))
    also = f"; distilled from {len(members)} models, which voted on {len(taught):,} other inputs"
    card = model_card(settings, trainer.pairs, trainer.dev, bool(trainer.held_out), said["result"], also)
    data = said["data"] | {"pairs": len(trainer.pairs), "voted": len(taught), "distilled_from": len(members)}
    update_folder(out, {"data": data}, card)
    return result


def _inputs(trainer: Trainer, seed: int, words: Sequence[Pair]) -> list[Pair]:
    """Inputs that neither pairs nor dev pairs have, each once: words first, then such as are made of the pairs'."""
    form, unit = trainer.config.input_normalization, trainer.config.input_unit
    known = {(pair.input, pair.features) for pair in (*trainer.pairs, *trainer.dev)}
    new = [word._replace(input=normalized(word.input, form)) for word in words]
    new = [word for word in dict.fromkeys(new) if (word.input, word.features) not in known]
    count = min(SPLICED * len(trainer.pairs), MOST_SPLICED)
    new += splice(trainer.pairs, count, seed=seed, unit=unit, known=[*trainer.dev, *new])
    return [pair for pair in new if not trainer.network.too_long(pair.input)]


def _votes(members: Sequence[Path], trainer: Trainer, inputs: Sequence[Pair], tell: Tell) -> list[Any]:
    """What the members make of inputs: input, output and features of each, as JSON has them, empty outputs left out."""
    device = trainer.accelerator.device
    ensemble = Ensemble([GraphTransformNet.load(member, device=device) for member in members])
    note = f"{len(members)} members vote on {len(inputs):,} inputs that have no answers"
    found: list[Any] = []
    begun = perf_counter()
    for start in range(0, len(inputs), VOTED):
        tell(NAME, _progress(start, len(inputs), perf_counter() - begun, () if start else (note,)))
        chosen = inputs[start : start + VOTED]
        features = [pair.features for pair in chosen] if trainer.network.config.features else None
        made = ensemble.transform([pair.input for pair in chosen], features=features)
        found += [(pair.input, output, pair.features) for pair, output in zip(chosen, made, strict=True) if output]
    return found


def _progress(done: int, inputs: int, seconds: float, notes: tuple[str, ...]) -> Progress:
    """Where the vote is, before any epoch."""
    return Progress(
        epoch=0,
        epochs=0,
        step=done,
        steps=inputs,
        done=done / inputs,
        loss=nan,
        dev_exact_match=None,
        examples_per_second=done / max(seconds, 1e-9),
        seconds_left=seconds * (inputs - done) / max(done, 1),
        notes=notes,
    )
