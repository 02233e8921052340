"""From nothing to a trained model: learns to read dates, is judged on dates it has never seen, and reads ten more."""

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grapheme_nn.cli.progress import Report
from grapheme_nn.config import PRESETS
from grapheme_nn.data import generate, hold_out, overlap
from grapheme_nn.evaluate import evaluate
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.training import train

WANTED = 0.99
FOLDER = Path("runs/dates")

console = Console()
pairs = generate("dates", count=11_010, seed=1)  # all with different inputs
new, held_out, pairs = pairs[:10], pairs[10:1010], pairs[1010:]
assert overlap(pairs, held_out + new) == 0
console.print(f"learning from {len(pairs):,} dates such as {pairs[0].input!r} -> {pairs[0].target!r}")

# Spelled out, so that what suits other tasks in the preset does not change what this demo promises.
settings = replace(PRESETS["small"], loss="path", epochs=4, batch_size=32, learning_rate=2e-3, dropout=0.2)
learned, dev = hold_out(pairs, share=0.05, seed=1)
with Report() as report:
    train(learned, dev, settings, FOLDER, progress=report)

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
