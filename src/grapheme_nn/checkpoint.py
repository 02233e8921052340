"""Checkpoints: all that a training run is made of, in one safetensors file, so that it can go on."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from grapheme_nn.model_folder import ModelError, replace_files, write_tensors

FILE = "checkpoint.safetensors"


def save_checkpoint(
    folder: Path, model: nn.Module, average: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Weights, their average, the optimiser, the random numbers to come, and `state` as JSON, all in one file."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in values.items()}
    tensors |= {f"random.{name}": value for name, value in _random_states().items()}
    replace_files(folder, {FILE: lambda file: write_tensors(tensors, file, {"state": json.dumps(state)})})


def load_checkpoint(
    folder: Path, model: nn.Module, average: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Put everything back where `save_checkpoint` took it from; returns `state`."""
    tensors, state = _read(folder)
    try:
        model.load_state_dict(_below("model", tensors))
        average.load_state_dict(_below("average", tensors))
    except RuntimeError:
        raise ModelError(f"the checkpoint in {folder} is that of another model: train without resuming") from None
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _below("optimizer", tensors).items():
        number, _, key = name.partition(".")
        moments.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
    random = _below("random", tensors)
    torch.set_rng_state(random["cpu"])
    for device in range(torch.cuda.device_count()):
        if f"cuda{device}" in random:
            torch.cuda.set_rng_state(random[f"cuda{device}"], device)
    return state


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(folder / FILE, framework="pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"{folder / FILE} is damaged ({error}): train without resuming") from None


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


def _random_states() -> dict[str, Tensor]:
    cuda = {f"cuda{number}": torch.cuda.get_rng_state(number) for number in range(torch.cuda.device_count())}
    return {"cpu": torch.get_rng_state()} | cuda
