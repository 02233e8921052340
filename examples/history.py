"""The history of a prediction: which letters of the input made which letter of the output, morph by morph.

A small network (merge, lift, split) learns to write every letter twice, `balloon` to `bbaalllloooonn`.

    python examples/history.py
"""

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from grapheme_nn import GraphTransformNet, Morph, TrainConfig, texts_to_batch, train
from grapheme_nn.data import Pair, generate, hold_out

MORPHS = ("merge", "lift", "split")
FOLDER = Path("runs/history")


def chain(graph: Morph) -> list[Morph]:
    """The graphs that a prediction went through, the first one first."""
    return [graph] if graph.before is None else [*chain(graph.before), graph]


def twice(text: str) -> str:
    """The text with every letter written twice."""
    return "".join(2 * letter for letter in text)


def main(text: str = "balloon", count: int = 500, epochs: int = 4) -> str:
    """What the text became."""
    words = [pair.input for pair in generate("stutter", count, seed=1)]  # letters by chance, some of them repeated
    pairs, dev = hold_out([Pair(word, twice(word)) for word in words], seed=1)
    config = TrainConfig(morphs=MORPHS, epochs=epochs, width=32, hidden=16, layers=1, heads=2, seed=1)
    result = train(pairs, dev, config, FOLDER, overwrite=True)
    model = GraphTransformNet.load(FOLDER)

    with torch.no_grad():
        predicted = model(texts_to_batch([text]))
    decoded = model.objective.decode(predicted)
    (output,) = model.transform([text])

    console = Console()
    console.print(f"{result.best_dev_exact_match:.0%} of {len(dev)} words that were held out come out right")
    console.print(f"{text!r} became {output!r}")
    stages = Table("after", "nodes", "edges", "made of", title="the chain")
    for name, graph in zip(("encode", *MORPHS), chain(predicted.graph), strict=True):
        clusters = [graph.history.contributors(node)[0].tolist() for node in range(graph.num_nodes)]
        made_of = " ".join("".join(text[letter] for letter in cluster) for cluster in clusters)
        stages.add_row(name, str(graph.num_nodes), str(graph.edge_index.size(1)), made_of)
    console.print(stages)
    history = Table("letter", "slot", "copied from", "made of the letters", "weights", title="the prediction")
    for letter, slot in zip(output, decoded.slot[0].tolist(), strict=False):
        letters, weights = predicted.history.contributors(slot)
        numbers = " ".join(f"{number}:{text[number]}" for number in letters.tolist())
        node = int(predicted.node[0, slot])
        shares = " ".join(f"{weight:.2f}" for weight in weights.tolist())
        history.add_row(letter, str(slot), f"{node}:{text[node]}", numbers, shares)
    console.print(history)
    return output


if __name__ == "__main__":
    main()
