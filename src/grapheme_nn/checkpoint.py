"""Checkpoints: all that a training run is made of, in one safetensors file, so that it can go on."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from grapheme_nn.model_folder import ModelError, packed, replace_files

FILE = "checkpoint.safetensors"
# Where several members are trained: the folder that they are in until all of them have ended, and what it is that is
# trained there.
UNFINISHED, PLAN = "unfinished", "plan.json"


def has_stopped(folder: Path) -> bool:
    """Whether there is a training in a folder that can be continued, of one model or of several."""
    return (folder / FILE).exists() or has_stopped_members(folder)


def has_stopped_members(folder: Path) -> bool:
    """Whether there is a training of several members in a folder that can be continued."""
    return (folder / UNFINISHED / PLAN).exists()


def save_checkpoint(
    folder: Path, model: nn.Module, average: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Weights, their average, the optimiser, the random numbers to come, and `state` as JSON, all in one file."""
    moments = optimizer.state_dict()["state"].items()
    cuda = {f"cuda{number}": numbers for number, numbers in enumerate(torch.cuda.get_rng_state_all())}
    parts = {
        "model": model.state_dict(),
        "average": average.state_dict(),
        "optimizer": {f"{key}.{name}": torch.as_tensor(value) for key, row in moments for name, value in row.items()},
        "random": {"cpu": torch.get_rng_state()} | cuda,
    }
    tensors = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
    replace_files(folder, {FILE: packed(tensors, {"state": json.dumps(state)})})


def load_checkpoint(
    folder: Path, model: nn.Module, average: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Put everything back where `save_checkpoint` took it from; returns `state`."""
    parts: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    try:
        with safe_open(folder / FILE, framework="pt") as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
            for name in file.keys():  # noqa: SIM118
                part, _, rest = name.partition(".")
                parts[part][rest] = file.get_tensor(name)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"{folder / FILE} is damaged ({error}): train without resuming") from None
    try:
        model.load_state_dict(parts["model"])
        average.load_state_dict(parts["average"])
    except RuntimeError:
        raise ModelError(f"the checkpoint in {folder} is that of another model: train without resuming") from None
    moments: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in parts["optimizer"].items():
        number, _, key = name.partition(".")
        moments[int(number)][key] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
    torch.set_rng_state(parts["random"]["cpu"])
    for device in range(min(torch.cuda.device_count(), len(parts["random"]) - 1)):
        torch.cuda.set_rng_state(parts["random"][f"cuda{device}"], device)
    return state
