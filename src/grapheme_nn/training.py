"""The room of a training run's parts: pairs, network, its averaged copy, optimiser, and how a step is made."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from hashlib import blake2b
from math import ceil
from pathlib import Path
from random import Random

import torch
from accelerate import Accelerator

from grapheme_nn.checkpoint import save_checkpoint
from grapheme_nn.data import Pair, length_batches
from grapheme_nn.examples import Examples, choose_parts, features_in, labels_in
from grapheme_nn.graph import Integers
from grapheme_nn.model import GraphTransformNet, ModelConfig
from grapheme_nn.settings import Resolved, TrainConfig

# How many examples a run sees where `epochs` is not given, between which numbers of epochs that is kept, and the steps
# that even ten pairs need.
EXAMPLES, FEWEST_EPOCHS, MOST_EPOCHS, FEWEST_STEPS = 200_000, 4, 100, 1000
COPYING = 0.6  # a task of copying has at least this share of its targets' units in its inputs
METRICS = "metrics.jsonl"


@dataclass
class Run:
    """What changes while training, and is in the checkpoint."""

    epoch: int = 0
    step: int = 0  # of the epoch
    total_steps: int = 0
    loss: float = 0.0  # summed over this epoch
    counted: int = 0
    best: float = -1.0
    best_epoch: int = 0
    perfect: int = 0  # epochs in a row with nothing wrong
    dev: float | None = None
    warning: str = ""
    seconds: float = 0.0  # of training alone
    examples: int = 0
    total_seconds: float = 0.0


class Training:
    """The parts of a run: pairs, network, its averaged copy, optimiser."""

    def __init__(self, pairs: Sequence[Pair], dev: Sequence[Pair], config: TrainConfig) -> None:
        if not pairs:
            raise ValueError("there are no pairs to train on")
        self.pairs, self.dev = pairs, dev or pairs[:1000]
        features = features_in(pairs)
        self.examples = Examples.of(pairs, config.input_unit, config.target_unit, with_features=bool(features))
        needed = self.examples.needed_parts(config.loss)
        self.config = _resolve(config, self.examples, needed)
        self.not_covered = int((needed > self.config.parts).sum())
        torch.manual_seed(config.seed)
        self.accelerator = Accelerator()
        shared = {field.name for field in fields(ModelConfig)} & {field.name for field in fields(config)}
        shape = {name: getattr(self.config, name) for name in shared}
        network = GraphTransformNet(ModelConfig(labels_in(pairs, config.target_unit), features, **shape))
        self.average = deepcopy(network).to(self.accelerator.device).eval()
        optimizer = torch.optim.AdamW(
            network.parameters(), config.learning_rate, betas=(0.9, 0.98), weight_decay=config.weight_decay, fused=True
        )
        self.model, self.optimizer = self.accelerator.prepare(network, optimizer)
        self.network: GraphTransformNet = self.accelerator.unwrap_model(self.model)

    def steps(self, epoch: int) -> list[list[list[int]]]:
        """The steps of an epoch: for each, the batches that this process accumulates."""
        batches = length_batches(self.examples.lengths, self.config.batch_size, seed=self.config.seed, epoch=epoch)
        together = self.config.accumulate * self.accelerator.num_processes
        steps = [batches[start : start + together] for start in range(0, len(batches), together)]
        # Every process must take part in every step; the last one may be short of batches.
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        return [step[rank::world] or step[:1] for step in steps]

    def step(self, batches: list[list[int]], rate: float, random: Random, done: int) -> tuple[float, int]:
        """One step of the optimiser; the summed loss and the number of examples that had one."""
        self.model.train()
        total, counted = 0.0, 0
        for rows in batches:
            inputs, targets = self.examples.batch(rows, unseen=self.config.unseen, random=random)
            device = self.accelerator.device
            value = self.network.loss(self.model(inputs.to(device)), targets.to(device))
            possible = value != torch.inf  # nan is no such case: it must be seen
            self.accelerator.backward(torch.where(possible, value, 0).sum() / (len(rows) * len(batches)))
            total += float(torch.where(possible, value, 0).sum().detach())
            counted += int(possible.sum())
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        # Early on the average must forget the random weights it began with.
        keep = min(self.config.ema, (1 + done) / (10 + done))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - keep)
        return total, counted

    def evaluate(self) -> tuple[float, str]:
        """The dev exact match of the averaged weights, and a warning where its outputs have collapsed."""
        features = [pair.features for pair in self.dev] if self.network.config.features else None
        outputs = self.average.transform([pair.input for pair in self.dev], features=features)
        right = sum(output == pair.target for output, pair in zip(outputs, self.dev, strict=True))
        distinct, wanted = len(set(outputs)), len({pair.target for pair in self.dev})
        warning = ""
        if wanted > 1 and distinct < 0.5 * wanted:
            warning = (
                f"outputs have collapsed: {distinct:,} different ones where the targets have {wanted:,}; "
                "train longer, or lower the learning rate"
            )
        return right / len(self.dev), warning

    @cached_property
    def identity(self) -> str:
        """What a checkpoint must agree with to be continued."""
        digest = blake2b(repr([tuple(pair) for pair in self.pairs]).encode("utf-8", "surrogatepass")).hexdigest()
        return json.dumps([asdict(self.config), digest[:32]])

    def save_checkpoint(self, run: Run, out: Path) -> None:
        if self.accelerator.is_main_process:
            state = {"config": self.identity, "run": asdict(run)}
            save_checkpoint(out, self.network, self.average, self.optimizer, state)

    def save_model(self, run: Run, out: Path) -> None:
        if self.accelerator.is_main_process:
            self.average.save(out, card=_card(self, run), training=asdict(self.config))

    def write_metrics(self, run: Run, rate: float, out: Path) -> None:
        """Add the line of an epoch."""
        line = {
            "epoch": run.epoch,
            "step": run.total_steps,
            "loss": run.loss / max(run.counted, 1),
            "dev_exact_match": run.dev,
            "learning_rate": rate,
            "examples_per_second": run.examples / max(run.seconds, 1e-9),
            "seconds": run.total_seconds,
        } | ({"warning": run.warning} if run.warning else {})
        if self.accelerator.is_main_process:
            with (out / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _resolve(config: TrainConfig, examples: Examples, needed: Integers) -> Resolved:
    """The configuration with everything decided that it leaves to the pairs."""
    count, parts = needed.size, config.parts or choose_parts(needed)
    batch_size = min(config.batch_size, max(4, count // 32))
    epochs = min(max(EXAMPLES // count, FEWEST_EPOCHS), MOST_EPOCHS)
    epochs = max(epochs, ceil(FEWEST_STEPS / ceil(count / batch_size)))
    values = asdict(config) | {
        "parts": parts,
        "reach": config.reach or max(8, 2 * parts),
        "epochs": config.epochs or epochs,
        "patience": max(15, (config.epochs or epochs) // 4) if config.patience is None else config.patience,
        "batch_size": batch_size,
        "unseen": config.unseen if examples.copied_share() >= COPYING else 0.0,
    }
    return Resolved(**values)


def _card(training: Training, run: Run) -> str:
    """What a reader of the model folder wants to know first."""
    config, example = training.config, training.pairs[0]
    given = ", features=[...]" if training.network.config.features else ""
    return f"""# A grapheme model

Turns one text into another, learned from {len(training.pairs):,} pairs such as `{example.input}` to `{example.target}`.

- {run.dev:.2%} of {len(training.dev):,} dev pairs are exactly right (best of {run.epoch} epochs so far).
- Loss `{config.loss}`, preset `{config.preset}`, seed {config.seed}, {config.parts} parts for each node.
- A unit of input is a {config.input_unit}, of output a {config.target_unit}.

```python
from grapheme_nn import GraphTransformNet

model = GraphTransformNet.load("this folder")
model.transform(["{example.input}"]{given})
```
"""
