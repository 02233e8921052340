"""From nothing to a trained model: learns to read dates, is judged on dates it has never seen, and reads ten more."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grapheme_nn import GraphTransformNet, TrainConfig, train
from grapheme_nn.cli.progress import Report
from grapheme_nn.data import generate, hold_out, overlap
from grapheme_nn.evaluate import evaluate

WANTED = 0.99
HELD_OUT, NEW = 1000, 10
FOLDER = Path("runs/dates")
CONFIG = TrainConfig(epochs=4)  # what one gets, but for the number of epochs


def main(count: int = 10_000, config: TrainConfig = CONFIG) -> None:
    """Train on `count` dates, and judge on others; ends with an error where the promise is not kept."""
    console = Console()
    pairs = generate("dates", count=count + HELD_OUT + NEW, seed=1)  # all with different inputs
    new, held_out, pairs = pairs[:NEW], pairs[NEW : NEW + HELD_OUT], pairs[NEW + HELD_OUT :]
    assert overlap(pairs, held_out + new) == 0
    console.print(f"learning from {len(pairs):,} dates such as {pairs[0].input!r} -> {pairs[0].target!r}")

    learned, dev = hold_out(pairs, share=0.05, seed=1)
    with Report() as report:
        train(learned, dev, config, FOLDER, overwrite=True, progress=report)

    model = GraphTransformNet.load(FOLDER)
    found = evaluate(model.transform([pair.input for pair in held_out]), [pair.target for pair in held_out])
    table = Table("ten new dates", "read as", "sure", "right")
    outputs, scores = model.transform([pair.input for pair in new], return_scores=True)
    for pair, output, score in zip(new, outputs, scores, strict=True):
        table.add_row(pair.input, output, f"{score:.1%}", "yes" if output == pair.target else f"no: {pair.target}")
    console.print(table)
    console.print(f"exact match on {found.pairs:,} dates never seen in training: {found.exact_match:.2%}")
    print(f"the model is in {FOLDER}: echo 'March 5th, 2024' | .venv/bin/grapheme predict {FOLDER} --scores")
    if found.exact_match < WANTED:
        sys.exit(f"that is below the {WANTED:.0%} that this demo promises")


if __name__ == "__main__":
    main()
