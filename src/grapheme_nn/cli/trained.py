"""What a person is told when a training has ended: how it went, where the model is, and a command that tries it."""

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from grapheme_nn.cli.sentences import Unusable, say
from grapheme_nn.data import Graph, Pair

if TYPE_CHECKING:
    from grapheme_nn.members import EnsembleResult
    from grapheme_nn.training import TrainResult

LONGEST_LINE = 2_000  # of a command that is shown


def tell_result(result: "TrainResult | EnsembleResult", pairs: list[Pair], dev: list[Pair], out: Path) -> None:
    """Say how it went; a training that has learned nothing is `Unusable`."""
    if result.best_dev_exact_match == 0:
        more = "more minutes (--minutes)" if result.out_of_time else "more epochs (--epochs)"
        sentence = (
            f"nothing came out right: not one of {len(dev):,} dev pairs {_course(result)} ({result.ended}); "
            f"look at the pairs, or give it {more}; the model is in {out} all the same"
        )
        if result.learned_nothing:
            raise Unusable(sentence)
        say(sentence)
        return
    say(
        f"ended after {result.seconds:,.0f} s: {result.ended}; dev exact match {result.best_dev_exact_match:.2%} "
        f"{_course(result, best=True)}, {result.parameters:,} parameters: the model is in {out}"
    )
    if not result.scores_fitted:
        say("scores are not fitted, for there are too few dev pairs that were not learned from: take them as an order")
    say(f"use it: {use(pairs, out)}")


def _course(result: "TrainResult | EnsembleResult", *, best: bool = False) -> str:
    """In which epoch, or by the vote of how many."""
    from grapheme_nn.training import TrainResult

    if not isinstance(result, TrainResult):
        alone = f" ({min(result.members):.2%} to {max(result.members):.2%} by themselves)" if best else ""
        return f"by the vote of {len(result.members)}{alone}"
    if best:
        return f"in epoch {result.best_epoch} of {result.epochs}"
    return f"in {result.epochs} epoch{'s' * (result.epochs > 1)}"


def use(pairs: list[Pair], out: Path) -> str:
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
