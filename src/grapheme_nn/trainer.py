"""What a training run is made of: examples, network, its averaged copy and optimiser; one step, and an evaluation."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from hashlib import sha256
from math import ceil, inf, isfinite
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from grapheme_nn.calibration import FEWEST, Calibration, fit_calibration
from grapheme_nn.card import model_card
from grapheme_nn.checkpoint import FILE as CHECKPOINT
from grapheme_nn.checkpoint import save_checkpoint
from grapheme_nn.config import ModelConfig, TrainConfig
from grapheme_nn.data import Graph, Pair, length_batches
from grapheme_nn.data.examples import Examples, edge_types_in, edges_in, features_in, labels_in
from grapheme_nn.drawing import preview
from grapheme_nn.isomorphism import is_same
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.model_folder import MEMBERS, holds_members, update_folder
from grapheme_nn.morph import Merge, Morph
from grapheme_nn.registry import OBJECTIVES
from grapheme_nn.resolve import checked_pairs, resolve_kind, resolve_sizes
from grapheme_nn.text_choice import choose_forms, choose_units, in_forms

if TYPE_CHECKING:
    from grapheme_nn.ensemble import Ensemble

METRICS = "metrics.jsonl"
MAY_CHANGE = ("time_limit", "patience")  # when a run is continued: only how long it goes on
MOST_LENGTH = 4_096  # of a batch, padded: of long texts few are in it, so that steps are many and memory is bounded
# The best model is chosen by the mean of so many epochs that their dev pairs are together as many as the first, at most
# the second: the best of a hundred epochs by a hundred pairs would be the luckiest.
ENOUGH_JUDGED, MOST_TOGETHER = 500, 9
MOST_FITTED = 2_000  # dev pairs that scores are fitted on
DIVERGED = "the loss or its gradient is no longer a finite number"
MOST_NAMED, LONGEST_NAMED = 3, 60  # pairs that teach nothing, and characters of a side of one


@dataclass
class Run:
    """What changes while training, and is in the checkpoint."""

    epoch: int = 0
    step: int = 0  # of the epoch
    total_steps: int = 0
    rate: float = 0.0  # of the last step
    loss: float = 0.0  # summed over this epoch
    counted: int = 0
    best: float = -1.0  # exact match of the model that is kept
    best_epoch: int = 0  # of it
    best_mean: float = -1.0  # exact match of the epochs that were judged together, when it was chosen
    best_log_probability: float = -inf
    recent: list[float] = field(default_factory=list)  # exact match of the last epochs, as many as are judged together
    gained: int = 0  # the last epoch in which more came out right than ever before
    perfect: int = 0  # epochs in a row with nothing wrong
    dev: float | None = None  # exact match
    dev_log_probability: float = -inf  # mean over the dev pairs
    warning: str = ""
    merged: int = 0  # nodes that were merged away in this epoch
    nodes: int = 0  # of so many
    seconds: float = 0.0  # of training alone
    examples: int = 0
    total_seconds: float = 0.0
    judging: float = 0.0  # seconds that the last evaluation took, and keeping what it chose


class Trainer:
    """The parts of a run: pairs, network, its averaged copy, optimiser.

    `notes` are sentences on what was found by looking at the pairs. `files` are the names of what they were read from,
    with the SHA-256 of each.
    """

    def __init__(
        self, pairs: Sequence[Pair], dev: Sequence[Pair], config: TrainConfig, files: Mapping[str, str] | None = None
    ) -> None:
        if not pairs:
            raise ValueError("there are no pairs to train on")
        pairs, dev = checked_pairs(pairs), checked_pairs(dev)
        config, forms = choose_forms(config, pairs)
        pairs, dev = in_forms(config, pairs), in_forms(config, dev)
        config, units = choose_units(config, pairs)
        self.notes = forms + units
        self.pairs, self.dev, self.files = pairs, dev or pairs[:1000], dict(files or {})
        learned = {pair.input for pair in pairs}
        self.held_out = [pair for pair in self.dev if pair.input not in learned]  # what dev figures should be of
        features = features_in(pairs)
        config = resolve_kind(config, pairs[0])
        self.examples = Examples.of(pairs, config.input_unit, config.target_unit, with_features=bool(features))
        needed = self.examples.needed_parts(OBJECTIVES[config.loss]())
        self.config = resolve_sizes(config, self.examples, needed)
        not_covered = np.flatnonzero(needed > self.config.parts)
        self.not_covered = not_covered.size
        if not_covered.size:
            self.notes.append(_unteachable([pairs[row] for row in not_covered], self.config.parts))
        self.merged = self.nodes = 0  # in the last step: nodes merged away, of so many
        torch.manual_seed(config.seed)
        self.accelerator = Accelerator()
        shared = {field.name for field in fields(ModelConfig)} & {field.name for field in fields(config)}
        shape = {name: getattr(self.config, name) for name in shared}
        network = GraphTransformNet(
            ModelConfig(
                labels_in((pair.target for pair in pairs), config.target_unit),
                features,
                edges=edges_in((pair.target for pair in pairs), from_text=config.input_unit != "graph"),
                edge_types=edge_types_in(pair.input for pair in pairs),
                target_edge_types=edge_types_in(pair.target for pair in pairs),
                input_units=labels_in((pair.input for pair in pairs), config.input_unit),
                longest_input=max(row.x.size for row in self.examples.inputs),
                **shape,
            )
        )
        self.average = AveragedModel(
            network, self.accelerator.device, multi_avg_fn=partial(_average, decay=config.ema)
        ).eval()
        for module in network.modules():
            if isinstance(module, Merge):
                module.register_forward_hook(self._count_merges)
        rate, decay = self.config.learning_rate, config.weight_decay
        optimizer = torch.optim.AdamW(network.parameters(), rate, betas=(0.9, 0.98), weight_decay=decay, fused=True)
        self.model, self.optimizer = self.accelerator.prepare(network, optimizer)
        self.network: GraphTransformNet = self.accelerator.unwrap_model(self.model)

    @property
    def judged_together(self) -> int:
        """How many epochs are judged by the mean of their exact match."""
        return min(ceil(ENOUGH_JUDGED / len(self.dev)), MOST_TOGETHER)

    @property
    def averaged(self) -> GraphTransformNet:
        """The network with the averaged weights, which is evaluated and kept."""
        network = self.average.module
        assert isinstance(network, GraphTransformNet)
        return network

    def steps(self, epoch: int) -> list[list[list[int]]]:
        """The steps of an epoch: for each, the batches that this process accumulates."""
        batches = length_batches(
            self.examples.lengths, self.config.batch_size, seed=self.config.seed, epoch=epoch, most=MOST_LENGTH
        )
        together = self.config.accumulate * self.accelerator.num_processes
        steps = [batches[start : start + together] for start in range(0, len(batches), together)]
        # Every process must take part in every step; the last one may be short of batches.
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        return [step[rank::world] or step[:1] for step in steps]

    def step(self, batches: list[list[int]], rate: float, random: Random, done: float = 1.0) -> tuple[float, int]:
        """One step of the optimiser; the summed loss and the number of examples that had one.

        `done` is the share of the training that is.
        """
        self.model.train()
        self.network.objective.done = done
        total, counted, self.merged, self.nodes = 0.0, 0, 0, 0
        for rows in batches:
            inputs, targets = self.examples.batch(rows, unseen=self.config.unseen, random=random)
            if self.accelerator.device.type != "cpu":
                inputs, targets = inputs.to(self.accelerator.device), targets.to(self.accelerator.device)
            predicted = self.model(inputs)
            try:
                value = self.network.objective(predicted, targets).value
            except ValueError:  # of which some objectives find no plan at all
                if predicted.label_log_prob.isnan().any():
                    raise FloatingPointError(DIVERGED) from None
                raise
            possible = value != torch.inf  # nan is no such case: it must be seen
            value = torch.where(possible, value, 0).sum()
            extra = sum(predicted.graph.losses.values())  # what the morphs ask for themselves
            self.accelerator.backward((value / len(rows) + extra) / len(batches))
            total += float(value.detach())
            counted += int(possible.sum())
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), self.config.clip)
        if not isfinite(total) or not isfinite(norm):  # before it is in the weights
            self.optimizer.zero_grad()
            raise FloatingPointError(DIVERGED)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.update_parameters(self.network)
        return total, counted

    def evaluate(self) -> tuple[float, float, str]:
        """Of the averaged weights: dev exact match, mean dev log-probability, and a warning where outputs collapsed."""
        features = [pair.features for pair in self.dev] if self.network.config.features else None
        wanted = [pair.target for pair in self.dev]
        outputs, judged = self.averaged.judge([pair.input for pair in self.dev], wanted, features=features)
        right = sum(is_same(output, target) for output, target in zip(outputs, wanted, strict=True))
        # One target that cannot be spelled is no reason for knowing nothing of the others.
        mean = sum(max(value, -1e3) for value in judged) / len(judged)
        return right / len(wanted), mean, collapse(outputs, wanted)

    def _count_merges(self, module: Merge, arguments: object, morph: Morph) -> None:
        if module.training:
            self.nodes += morph.assignment.num_sources
            self.merged += morph.assignment.num_sources - morph.assignment.num_targets

    @cached_property
    def identity(self) -> str:
        """What a checkpoint must agree with to be continued."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in MAY_CHANGE}
        return json.dumps([settings, self.data["sha256"]])

    @cached_property
    def data(self) -> dict[str, Any]:
        """What was learned from, as `config.json` has it."""
        pairs = repr([[tuple(pair) for pair in side] for side in (self.pairs, self.dev)])
        digest = sha256(pairs.encode("utf-8", "surrogatepass")).hexdigest()
        return {
            "files": self.files,
            "pairs": len(self.pairs),
            "dev_pairs": len(self.dev),
            "held_out": len(self.held_out),
            "sha256": digest,
        }

    def save_checkpoint(self, run: Run, out: Path) -> None:
        if self.accelerator.is_main_process:
            state = {"config": self.identity, "run": asdict(run)}
            save_checkpoint(out, self.network, self.average, self.optimizer, state)

    def save_model(self, run: Run, out: Path) -> None:
        if self.accelerator.is_main_process:
            result = _result(run)
            card = model_card(self.config, self.pairs, self.dev, bool(self.held_out), result)
            self.averaged.save(
                out, overwrite=True, card=card, training=asdict(self.config), data=self.data, result=result
            )

    def finish(self, run: Run, ended: str, out: Path) -> None:
        """Say in the folder why training ended, and fit the scores; what it would have gone on from is not needed."""
        if self.accelerator.is_main_process:
            result, model = _result(run, ended), GraphTransformNet.load(out, device=self.accelerator.device)
            slope, offset = self.calibration(model)
            config = asdict(replace(model.config, score_slope=slope, score_offset=offset))
            card = model_card(self.config, self.pairs, self.dev, bool(self.held_out), result)
            update_folder(out, {"model": config, "result": result}, card)
            (out / CHECKPOINT).unlink(missing_ok=True)
            if holds_members(out):  # of an ensemble that this model has replaced
                shutil.rmtree(out / MEMBERS)

    @property
    def scores_fitted(self) -> bool:
        """Whether there are enough dev pairs, not learned from, to fit scores on."""
        return len(self.held_out) >= FEWEST

    def calibration(self, model: "GraphTransformNet | Ensemble") -> Calibration:
        """What makes scores, fitted on dev pairs that were not learned from; the model's own is to be the plain one."""
        dev = self.held_out[:MOST_FITTED]
        features = [pair.features for pair in dev] if self.network.config.features else None
        outputs, scores = model.transform([pair.input for pair in dev], features=features, return_scores=True)
        right = [is_same(output, pair.target) for output, pair in zip(outputs, dev, strict=True)]
        return fit_calibration(scores, right)

    def write_metrics(self, run: Run, out: Path) -> None:
        """Add the line of an epoch."""
        line: dict[str, Any] = {
            "epoch": run.epoch,
            "step": run.total_steps,
            "loss": run.loss / max(run.counted, 1),
            "dev_exact_match": run.dev,
            "dev_log_probability": run.dev_log_probability,
            "learning_rate": run.rate,
            "examples_per_second": run.examples / max(run.seconds, 1e-9),
            "seconds": run.total_seconds,
        } | ({"warning": run.warning} if run.warning else {})
        merges = [module for module in self.network.modules() if isinstance(module, Merge)]
        if merges:
            line["threshold"] = [float(module.threshold.detach()) for module in merges]
            line["merged"], line["nodes"] = run.merged, run.nodes
        if self.accelerator.is_main_process:
            # Until the first model of this run is there, the figures are those of the model that it replaces.
            with (out / METRICS).open("w" if run.epoch == 1 else "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def collapse(outputs: Sequence[str | Graph], wanted: Sequence[str | Graph]) -> str:
    """A warning where there are far fewer different outputs than targets, else empty."""
    distinct, different = len(set(outputs)), len(set(wanted))
    if different < 2 or distinct >= 0.5 * different:
        return ""
    found = f"{distinct:,} different where there are {different:,} different targets"
    return f"outputs have collapsed: {found}; train longer, or lower the learning rate"


def _average(averages: list[Tensor], parameters: list[Tensor], count: Tensor, *, decay: float) -> None:
    """An exponential moving average that forgets quickly at first, when it is of random weights."""
    done = int(count)
    torch._foreach_lerp_(averages, parameters, 1 - min(decay, (1 + done) / (10 + done)))


def _result(run: Run, ended: str = "") -> dict[str, Any]:
    """What came of a run so far, as `config.json` has it."""
    return {
        "best_dev_exact_match": run.best,
        "best_epoch": run.best_epoch,
        "epochs_run": run.epoch,
        "ended": ended,  # why; empty while it has not
    }


def _unteachable(pairs: Sequence[Pair], parts: int) -> str:
    """Which pairs teach nothing, and why."""
    one = len(pairs) == 1
    longer = f"more than {parts} times as long as" if parts > 1 else "longer than"
    why = f"{'its target is' if one else 'their targets are'} {longer} {'its input' if one else 'their inputs'}"
    named = ", ".join(" -> ".join(map(_shortened, pair[:2])) for pair in pairs[:MOST_NAMED])
    rest = f" and {len(pairs) - MOST_NAMED:,} more" if len(pairs) > MOST_NAMED else ""
    return f"{len(pairs):,} {'pair teaches' if one else 'pairs teach'} nothing, for {why}: {named}{rest}"


def _shortened(side: str | Graph) -> str:
    text = preview(side) if isinstance(side, Graph) else repr(side)
    return text if len(text) <= LONGEST_NAMED else f"{text[:LONGEST_NAMED]}..."
