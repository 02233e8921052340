"""From expressions to their derivatives, DAG to DAG: learned from expressions of depth 3, tried on some of depth 6.

No rule of calculus is given to the network: it sees 20,000 expressions and their derivatives. What it makes of deeper
expressions is checked by numbers, against forward-mode differentiation of the expression itself.

    python examples/derivative.py
"""

import sys
from pathlib import Path
from random import Random

from grapheme_nn import Graph, GraphTransformNet, TrainConfig, draw, is_isomorphic, train
from grapheme_nn.cli.progress import Report
from grapheme_nn.data import generate, hold_out
from grapheme_nn.data.derivative import confirm_derivative
from grapheme_nn.data.expressions import evaluate, from_graph
from grapheme_nn.drawing import beside

WANTED = 0.9  # of the deep expressions
NEW, SHOWN, LONGEST = 50, 5, 400  # deep expressions, how many of them are shown, and with how many characters
FOLDER = Path("runs/derivative")
CONFIG = TrainConfig()  # what one gets
# x * sin(x): an edge leads from an operand to its operator, and its type says which operand it is.
PRODUCT = Graph(("x", "x", "sin", "*"), ((1, 2, 0), (0, 3, 0), (2, 3, 1)))


def is_derivative(made: Graph, given: Graph, seed: int = 0) -> bool:
    """Whether one DAG has the values that dual numbers give to the derivative of another, at points by chance."""
    try:
        return confirm_derivative(from_graph(given), from_graph(made), Random(seed))
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        return False  # another value; or no expression: several roots, a sum of one operand, an x with operands


def infix(graph: Graph) -> str:
    """A graph as people write expressions, what is shared written twice; in a few words where it is none."""

    def write(label: str, *operands: str) -> str:
        if label in "+-*" and len(operands) == 2:
            return f"({operands[0]} {label} {operands[1]})"
        return f"{label}({', '.join(map(bare, operands))})" if operands else label

    def bare(text: str) -> str:
        return text[1:-1] if text.startswith("(") else text

    try:
        text = bare(evaluate(from_graph(graph), write))
    except ValueError as error:
        return f"no expression: {error}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def main(count: int = 20_000, config: TrainConfig = CONFIG, depth: int = 6) -> float:
    """The share of expressions of that depth whose derivative is right; an error where the promise is not kept."""
    pairs, dev = hold_out(generate("derivative", count, seed=1, depth=3), share=0.05, seed=1)
    print(f"learning from {len(pairs):,} expressions of depth 3, such as {infix(pairs[0].input)}")
    with Report() as report:
        train(pairs, dev, config, FOLDER, overwrite=True, progress=report)
    model = GraphTransformNet.load(FOLDER)

    (made,) = model.transform([PRODUCT])
    print(beside({"a product": draw(PRODUCT), "its derivative": draw(made)}))
    deep = generate("derivative", NEW, seed=2, depth=depth)
    outputs = model.transform([pair.input for pair in deep])
    right = [is_derivative(output, pair.input) for pair, output in zip(deep, outputs, strict=True)]
    for number in sorted(range(NEW), key=lambda number: len(deep[number].target.nodes))[:SHOWN]:
        print(f"\nd/dx  {infix(deep[number].input)}\n   =  {infix(outputs[number])}")
        print("      right" if right[number] else "      wrong")
    same = sum(is_isomorphic(output, pair.target) for pair, output in zip(deep, outputs, strict=True))
    sizes = [sum(len(graph.nodes) for graph in graphs) / NEW for graphs in ([pair.input for pair in deep], outputs)]
    print(
        f"\n{sum(right)} of {NEW} derivatives of expressions of depth {depth} have the right values at random points;"
    )
    print(f"and {same} are, node for node, what the rules give: {sizes[0]:.0f} nodes become {sizes[1]:.0f} on average")
    print(f"the model is in {FOLDER}: .venv/bin/grapheme info {FOLDER}")
    if sum(right) < WANTED * NEW:
        sys.exit(f"that is below the {WANTED:.0%} that this demo promises")
    return sum(right) / NEW


if __name__ == "__main__":
    main()
