"""Derivatives learned from the same pairs by our graph model, by our text model, and by a transformer beside them.

    python benchmarks/derivative.py                                        # one table: the three models, three depths
    python benchmarks/derivative.py --models transformer --device cuda     # one model, so that each has its own process
    python benchmarks/derivative.py --pairs 300 --test 10 --minutes 0.2    # does it run at all?

Training pairs are expressions of depth 3, a tenth of them held out to choose the best epoch by; test pairs are of depth
3, 5 and 8, drawn with another seed.

graph        `train` on the DAGs. Right is an output that is isomorphic to the target.
text         `train` on the same pairs in Polish notation, a unit being a symbol. Right is the target's string.
transformer  `torch.nn.Transformer` on the same strings (pre-norm, sinusoidal positions, AdamW, warm-up and cosine), of
             about as many parameters as the graph model. Right is the target's string, decoded greedily.

A DAG is unfolded to a tree by writing a shared node once for each of its uses: root first, operands from left to right,
one space between symbols. The derivative of an unfolded expression is the unfolded derivative, so strings can be
learned as well as graphs; only the graph model has to get the sharing right, too.

All models have the same pairs: left out are those whose target unfolds to more than 2,000 symbols, and test pairs whose
input unfolds to one that was trained on. At most `--minutes` of training for each model. Ours end earlier where the
trainer has seen enough by its own defaults; the transformer takes all of the time, unless nothing is wrong any more.
With `--epochs 1000` time alone decides for all of them.
"""

import argparse
import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import cos, inf, log, pi
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from grapheme_nn import GraphTransformNet, TrainConfig, train
from grapheme_nn.data import Graph, Pair, generate, hold_out, length_batches
from grapheme_nn.data.derivative import FUNCTIONS, GRAMMAR
from grapheme_nn.data.expressions import to_prefix
from grapheme_nn.isomorphism import is_same
from grapheme_nn.training import PERFECT_EPOCHS, Progress

DEPTHS = (3, 5, 8)
MOST_SYMBOLS = 2_000  # of an unfolded target
TIME_BETWEEN_LINES = 15.0  # seconds
WARMUP = 0.05  # of the transformer's time


class Problem(NamedTuple):
    """The pairs of all models: DAGs, and the same as strings."""

    train: list[Pair]
    dev: list[Pair]
    tests: dict[int, list[Pair]]  # by depth


@dataclass(frozen=True)
class Row:
    """What one model came to."""

    model: str
    parameters: int
    seconds: float  # of training
    epochs: int
    dev: float  # best exact match
    exact: dict[int, float]  # by depth
    test_seconds: float
    device: str


def say(*parts: object) -> None:
    """Progress, apart from the table."""
    print(*parts, file=sys.stderr, flush=True)


def unfolded(side: str | Graph) -> str:
    """A DAG in Polish notation, what is shared being repeated; empty where that is too long."""
    assert isinstance(side, Graph)
    text = to_prefix(side, MOST_SYMBOLS)
    return "" if text.endswith("...") else text


def size(side: str | Graph) -> int:
    """Nodes, or symbols."""
    return len(side.nodes) if isinstance(side, Graph) else side.count(" ") + 1


def as_texts(pairs: Sequence[Pair]) -> list[Pair]:
    return [Pair(unfolded(pair.input), unfolded(pair.target)) for pair in pairs]


def problem_of(count: int, test: int, seed: int) -> tuple[Problem, list[str]]:
    """The pairs, and for each depth a sentence on what was left out."""
    drawn = generate("derivative", count, seed)
    pairs = [pair for pair in drawn if unfolded(pair.target)]
    known = {unfolded(pair.input) for pair in pairs}
    notes = [f"{len(pairs):,} training pairs of depth 3 ({len(drawn) - len(pairs)} too long)"]
    tests = {}
    for depth in DEPTHS:
        asked = generate("derivative", test, seed + 1, depth=depth)
        fitting = [pair for pair in asked if unfolded(pair.target)]
        tests[depth] = [pair for pair in fitting if unfolded(pair.input) not in known]
        longest = max((size(unfolded(pair.target)) for pair in tests[depth]), default=0)
        left_out = f"{len(asked) - len(fitting)} too long, {len(fitting) - len(tests[depth])} trained on left out"
        notes.append(f"{len(tests[depth]):,} test pairs of depth {depth} ({left_out}; up to {longest:,} symbols)")
    return Problem(*hold_out(pairs, seed=seed), tests), notes


def train_ours(name: str, problem: Problem, options: argparse.Namespace) -> Row:
    """Our model on DAGs or on strings, with the trainer's own settings."""
    config = TrainConfig(time_limit=options.minutes, epochs=options.epochs, seed=options.seed)
    pairs, dev, tests = problem
    if name == "text":
        config = TrainConfig(**asdict(config) | {"input_unit": "symbol", "target_unit": "symbol", "loss": options.loss})
        pairs, dev = as_texts(pairs), as_texts(dev)
        tests = {depth: as_texts(test) for depth, test in tests.items()}
    spoken, epoch = perf_counter(), 0

    def progress(now: Progress) -> None:
        nonlocal spoken, epoch
        ended = now.step == now.steps and now.epoch != epoch
        if ended or perf_counter() - spoken > TIME_BETWEEN_LINES:
            spoken, epoch = perf_counter(), now.epoch if ended else epoch
            right = "" if now.dev_exact_match is None else f", dev {now.dev_exact_match:.1%}"
            where = f"epoch {now.epoch}/{now.epochs}, step {now.step}/{now.steps}"
            say(f"{name}: {where}, loss {now.loss:.4g}{right}, {now.examples_per_second:.0f} examples/s")

    with TemporaryDirectory() as folder:
        result = train(pairs, dev, config, Path(folder), progress=progress)
        model = GraphTransformNet.load(folder, options.device)
    say(f"{name}: {result.parts} slots a node; the targets of {result.not_covered} training pairs do not fit in them")
    begun, exact = perf_counter(), {}
    for depth, test in tests.items():
        outputs = model.transform([pair.input for pair in test], batch_size=32)
        right = sum(is_same(output, pair.target) for output, pair in zip(outputs, test, strict=True))
        exact[depth] = right / max(len(test), 1)
        large = sum(size(pair.target) > result.parts * size(pair.input) for pair in test)
        say(f"{name}: depth {depth}: {right} of {len(test)}; the targets of {large} do not fit")
    label = name if name == "graph" else f"text, {options.loss}"
    tested = perf_counter() - begun
    best = result.best_dev_exact_match
    return Row(label, result.parameters, result.seconds, result.epochs, best, exact, tested, options.device)


PAD, START, END = range(3)
SYMBOLS = {symbol: 3 + at for at, symbol in enumerate(sorted({*GRAMMAR.leaves, *FUNCTIONS, "0"}))}


class Strings:
    """Pairs of strings as integers on a device: inputs [n, a], targets [n, b] from START to END, both padded."""

    def __init__(self, pairs: Sequence[Pair], device: str) -> None:
        texts = as_texts(pairs)
        inputs = [[SYMBOLS[symbol] for symbol in str(pair.input).split()] for pair in texts]
        targets = [[START, *(SYMBOLS[symbol] for symbol in str(pair.target).split()), END] for pair in texts]
        self.lengths = [(len(a), len(b)) for a, b in zip(inputs, targets, strict=True)]
        self.inputs, self.targets = (
            pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD).to(device)
            for rows in (inputs, targets)
        )

    def batch(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these rows, padded to the longest of them."""
        longest = [max(self.lengths[row][side] for row in rows) for side in (0, 1)]
        chosen = torch.tensor(rows, device=self.inputs.device)
        return self.inputs[chosen, : longest[0]], self.targets[chosen, : longest[1]]


class Transformer(nn.Module):
    """A transformer from strings to strings (Vaswani et al., 2017) with layers that normalise first."""

    place: Tensor  # [most, width]

    def __init__(self, width: int, layers: int, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(3 + len(SYMBOLS), width, PAD)
        self.dropout = nn.Dropout(dropout)
        self.body = nn.Transformer(width, heads, layers, layers, 4 * width, dropout, batch_first=True, norm_first=True)
        self.label = nn.Linear(width, 3 + len(SYMBOLS))
        angle = torch.arange(MOST_SYMBOLS + 2)[:, None] * torch.exp(-log(1e4) * torch.arange(0, width, 2) / width)
        self.register_buffer("place", torch.cat([angle.sin(), angle.cos()], 1), persistent=False)

    def forward(self, inputs: Tensor, before: Tensor) -> Tensor:
        """The logits of the symbol after each of `before`: [B, a] and [B, b] to [B, b, symbols]."""
        size = before.size(1)
        later = torch.ones(size, size, dtype=torch.bool, device=before.device).triu(1)
        nothing, gap = inputs == PAD, before == PAD
        made = self.body(
            self._embedded(inputs),
            self._embedded(before),
            tgt_mask=later,
            src_key_padding_mask=nothing,
            tgt_key_padding_mask=gap,
            memory_key_padding_mask=nothing,
            tgt_is_causal=True,
        )
        logits: Tensor = self.label(made)
        return logits

    def _embedded(self, symbols: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embed(symbols) + self.place[: symbols.size(1)])
        return embedded


@torch.no_grad()
def greedily_right(model: Transformer, strings: Strings, batch_size: int) -> int:
    """How many strings greedy decoding gets right, found without decoding.

    Greedy decoding writes the target where, given the target's symbols before it, each of its symbols and the end is
    the likeliest: by induction, as long as all were right, what was written before *is* the target's beginning; and the
    first that is not the likeliest is written wrong.
    """
    model.eval()
    right = 0
    order = sorted(range(len(strings.lengths)), key=strings.lengths.__getitem__)
    for start in range(0, len(order), batch_size):
        inputs, targets = strings.batch(order[start : start + batch_size])
        found, wanted = model(inputs, targets[:, :-1]).argmax(2), targets[:, 1:]
        right += int(((found == wanted) | (wanted == PAD)).all(1).sum())
    return right


def train_transformer(problem: Problem, options: argparse.Namespace) -> Row:
    """The peer: as many epochs as the time allows, and the weights of the epoch with the best dev exact match."""
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.mha.set_fastpath_enabled(False)  # one code path for training and evaluation
    warnings.filterwarnings("ignore", message=".*nested_tensor.*")
    strings, dev = Strings(problem.train, options.device), Strings(problem.dev, options.device)
    model = Transformer(options.width, options.layers).to(options.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"transformer: {parameters:,} parameters")
    optimizer = torch.optim.AdamW(
        model.parameters(), options.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    batch_size = min(options.batch_size, max(4, len(problem.train) // 32))
    costs = [sum(lengths) for lengths in strings.lengths]
    epochs, limit = options.epochs or inf, 60 * options.minutes
    begun = spoken = perf_counter()
    epoch = step = perfect = 0
    done, best, kept = 0.0, -1.0, model.state_dict()
    while epoch < epochs and done < 1 and perfect < PERFECT_EPOCHS:
        model.train()
        losses = []
        batches = length_batches(costs, batch_size, seed=options.seed, epoch=epoch)
        for rows in batches:
            done = max((perf_counter() - begun) / limit, step / (epochs * len(batches)))
            if done >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = options.learning_rate * min(1.0, done / WARMUP) * (1 + cos(pi * done)) / 2
            inputs, targets = strings.batch(rows)
            loss = nn.functional.cross_entropy(
                model(inputs, targets[:, :-1]).flatten(0, 1), targets[:, 1:].flatten(), ignore_index=PAD
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            step += 1
        exact = greedily_right(model, dev, 128) / len(problem.dev)
        epoch += 1
        perfect = perfect + 1 if exact == 1 else 0
        if exact >= best:
            best, kept = exact, {name: value.clone() for name, value in model.state_dict().items()}
        if perf_counter() - spoken > TIME_BETWEEN_LINES or epoch == 1 or done >= 1:
            spoken = perf_counter()
            mean = float(torch.stack(losses).mean()) if losses else float("nan")
            say(f"transformer: epoch {epoch}, step {step}, {done:.0%}, loss {mean:.4g}, dev {exact:.1%} ({best:.1%})")
    seconds = perf_counter() - begun
    model.load_state_dict(kept)
    begun, exacts = perf_counter(), {}
    for depth, test in problem.tests.items():
        right = greedily_right(model, Strings(test, options.device), 16) if test else 0
        exacts[depth] = right / max(len(test), 1)
        say(f"transformer: depth {depth}: {right} of {len(test)}")
    tested = perf_counter() - begun
    return Row("transformer", parameters, seconds, epoch, best, exacts, tested, options.device)


def main() -> int:
    """The table, a row as soon as it is known; 1 where a model failed."""
    options = read_options()
    if options.device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"  # the trainer would take a GPU where there is one
    begun = perf_counter()
    problem, notes = problem_of(options.pairs, options.test, options.seed)
    say(f"{perf_counter() - begun:.0f} s for the pairs")
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {options.device} ({machine}), seed {options.seed}, {options.minutes:g} minutes")
    print("; ".join(notes) + "\n")
    print(
        "| model | parameters | " + " | ".join(f"depth {depth}" for depth in DEPTHS) + " | dev | training s | epochs |"
    )
    print("|---|" + "---:|" * (4 + len(DEPTHS)), flush=True)
    rows: list[Row] = []
    for name in options.models:
        try:
            row = train_transformer(problem, options) if name == "transformer" else train_ours(name, problem, options)
        except Exception:  # the other models shall have their rows
            traceback.print_exc()
            continue
        rows.append(row)
        shares = " | ".join(f"{row.exact[depth]:.1%}" for depth in DEPTHS)
        cells = f"{shares} | {row.dev:.1%} | {row.seconds:.0f} | {row.epochs}"
        print(f"| {row.model} | {row.parameters:,} | {cells} |", flush=True)
        if options.json:
            told = {"torch": torch.__version__, "machine": machine, "pairs": notes, "options": vars(options)}
            options.json.write_text(json.dumps(told | {"rows": list(map(asdict, rows))}, default=str, indent=1) + "\n")
    return int(len(rows) < len(options.models))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=200, help="test pairs of each depth")
    parser.add_argument("--minutes", type=float, default=8.0, help="of training, for each model")
    parser.add_argument("--epochs", type=int, help="at most, for each model; the trainer's choice, or all of the time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", default="graph,text,transformer", help="names with commas between")
    parser.add_argument("--loss", default="monotone", help="the objective of the text model")
    parser.add_argument("--width", type=int, default=96, help="channels of the transformer")
    parser.add_argument("--layers", type=int, default=3, help="of its encoder, and of its decoder")
    parser.add_argument("--batch-size", type=int, default=128, help="of the transformer")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of the transformer")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    options.models = options.models.split(",")
    for name in options.models:
        if name not in ("graph", "text", "transformer"):
            parser.error(f"unknown model {name!r}: choose from graph, text, transformer")
    return options


if __name__ == "__main__":
    sys.exit(main())
