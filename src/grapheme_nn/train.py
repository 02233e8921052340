"""The room of training: a plain loop from pairs to a model folder."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from hashlib import blake2b
from math import ceil, cos, pi
from pathlib import Path
from random import Random
from time import perf_counter

import torch
from accelerate import Accelerator

from grapheme_nn.checkpoint import FILE, load_checkpoint, save_checkpoint
from grapheme_nn.data import Pair, length_batches
from grapheme_nn.examples import Examples, choose_parts, features_in, labels_in
from grapheme_nn.folder import ModelError
from grapheme_nn.graph import Integers
from grapheme_nn.model import GraphTransformNet, ModelConfig
from grapheme_nn.settings import PRESETS, Progress, Resolved, TrainConfig, TrainResult

__all__ = ["PRESETS", "Progress", "TrainConfig", "TrainResult", "train"]

# How many examples a run sees where `epochs` is not given, and between which numbers of epochs that is kept.
EXAMPLES, FEWEST_EPOCHS, MOST_EPOCHS = 320_000, 4, 100
STEPS_BETWEEN_CHECKPOINTS = 1000
# A copying task has at least this share of its target's units in its input.
COPYING = 0.6
PERFECT_EPOCHS = 3  # in a row: then there is nothing left to learn from the dev pairs
METRICS = "metrics.jsonl"
_SHAPE = (
    "input_unit",
    "target_unit",
    "parts",
    "width",
    "layers",
    "heads",
    "hidden",
    "dropout",
    "loss",
    "reach",
    "merge",
)


@dataclass
class _Run:
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


class _Training:
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
        shape = {key: getattr(self.config, key) for key in _SHAPE}
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
            possible = value < torch.inf
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

    def identity(self) -> str:
        """What a checkpoint must agree with to be continued."""
        digest = blake2b(repr([tuple(pair) for pair in self.pairs]).encode("utf-8", "surrogatepass")).hexdigest()
        return json.dumps([asdict(self.config), digest[:32]])

    def save_checkpoint(self, run: _Run, out: Path) -> None:
        if self.accelerator.is_main_process:
            state = {"config": self.identity(), "run": asdict(run)}
            save_checkpoint(out, self.network, self.average, self.optimizer, state)

    def save_model(self, run: _Run, out: Path) -> None:
        if self.accelerator.is_main_process:
            self.average.save(out, card=_card(self, run), training=asdict(self.config))

    def write_metrics(self, run: _Run, rate: float, out: Path) -> None:
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
    values = asdict(config) | {
        "parts": parts,
        "reach": config.reach or max(8, 2 * parts),
        "epochs": config.epochs or min(max(EXAMPLES // count, FEWEST_EPOCHS), MOST_EPOCHS),
        "batch_size": min(config.batch_size, max(4, count // 32)),
        "unseen": config.unseen if examples.copied_share() >= COPYING else 0.0,
    }
    return Resolved(**values)


def _card(training: _Training, run: _Run) -> str:
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


def train(
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TrainResult:
    """Train on pairs and leave the model with the best dev exact match in the folder `out`.

    Beside the model there are `metrics.jsonl`, a line per epoch, and a checkpoint. With `resume` a run that was stopped
    goes on from there, and on the CPU ends with the same weights, bit for bit, as if it had not been stopped. Without
    dev pairs the first 1,000 training pairs take their place.
    """
    out.mkdir(parents=True, exist_ok=True)
    training = _Training(pairs, dev, config)
    settings, run = training.config, _begin(training, out, resume)
    started = perf_counter() - run.total_seconds
    while run.epoch < settings.epochs and not _enough(run, settings):
        steps = training.steps(run.epoch)
        while run.step < len(steps) and not _time_is_up(run, settings):
            begun = perf_counter()
            rate = _learning_rate(run, settings, settings.epochs * len(steps))
            random = Random(f"{config.seed} {run.epoch} {run.step}")
            loss, counted = training.step(steps[run.step], rate, random, run.total_steps)
            run.loss, run.counted = run.loss + loss, run.counted + counted
            run.step, run.total_steps = run.step + 1, run.total_steps + 1
            run.examples += sum(map(len, steps[run.step - 1]))
            run.seconds += perf_counter() - begun
            run.total_seconds = perf_counter() - started
            if progress is not None:
                progress(_progress(run, settings, len(steps)))
            if run.total_steps % STEPS_BETWEEN_CHECKPOINTS == 0:
                training.save_checkpoint(run, out)
        run.dev, run.warning = training.evaluate()
        run.epoch += 1
        run.total_seconds = perf_counter() - started
        if run.dev > run.best:
            run.best, run.best_epoch = run.dev, run.epoch
            training.save_model(run, out)
        run.perfect = run.perfect + 1 if run.dev == 1 else 0
        training.write_metrics(run, rate, out)
        if progress is not None:
            progress(_progress(run, settings, len(steps)))
        run.step, run.loss, run.counted = 0, 0.0, 0
        training.save_checkpoint(run, out)
    return TrainResult(
        best_dev_exact_match=run.best,
        best_epoch=run.best_epoch,
        epochs=run.epoch,
        seconds=run.total_seconds,
        examples_per_second=run.examples / max(run.seconds, 1e-9),
        parts=settings.parts,
        not_covered=training.not_covered,
        parameters=sum(parameter.numel() for parameter in training.network.parameters()),
        warnings=(run.warning,) if run.warning else (),
    )


def _begin(training: _Training, out: Path, resume: bool) -> _Run:
    """The run to continue, or a new one in a folder without traces of others."""
    metrics = out / METRICS
    if resume and (out / FILE).is_file():
        state = load_checkpoint(out, training.network, training.average, training.optimizer)
        if state["config"] != training.identity():
            raise ModelError(f"the checkpoint in {out} was made with other pairs or options: train without resuming")
        run = _Run(**state["run"])
        lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True) if metrics.is_file() else []
        metrics.write_text("".join(lines[: run.epoch]), encoding="utf-8")
        return run
    (out / FILE).unlink(missing_ok=True)
    metrics.write_text("", encoding="utf-8")
    return _Run()


def _enough(run: _Run, config: TrainConfig) -> bool:
    """Whether another epoch would be wasted, or is not allowed."""
    impatient = config.patience > 0 and run.epoch - run.best_epoch >= config.patience
    return impatient or run.perfect >= PERFECT_EPOCHS or _time_is_up(run, config)


def _time_is_up(run: _Run, config: TrainConfig) -> bool:
    return config.time_limit is not None and run.total_seconds >= 60 * config.time_limit


def _done(run: _Run, config: TrainConfig, steps: int) -> float:
    """The share of the run that is done, by steps or by time, whichever says more."""
    by_time = 0.0 if config.time_limit is None else run.total_seconds / (60 * config.time_limit)
    return min(max(run.total_steps / steps, by_time), 1.0)


def _learning_rate(run: _Run, config: TrainConfig, steps: int) -> float:
    """Up in a line for the first steps, then down along half a cosine."""
    warm = max(1, ceil(config.warmup * steps))
    falling = (1 + cos(pi * _done(run, config, steps))) / 2
    return config.learning_rate * min((run.total_steps + 1) / warm, 1.0) * max(falling, 1e-3)


def _progress(run: _Run, config: TrainConfig, steps: int) -> Progress:
    done = max(_done(run, config, steps * config.epochs), 1e-9)
    return Progress(
        epoch=min(run.epoch + 1, config.epochs) if run.step < steps else max(run.epoch, 1),
        epochs=config.epochs,
        step=run.step,
        steps=steps,
        loss=run.loss / max(run.counted, 1),
        dev_exact_match=run.dev,
        examples_per_second=run.examples / max(run.seconds, 1e-9),
        seconds_left=run.total_seconds * (1 - done) / done,
    )
