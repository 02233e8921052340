"""Model folders: weights, what they mean, and a card to read; nothing in them is ever executed."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


class ModelError(ValueError):
    """A folder does not hold a model that can be used; the message says why in one sentence."""


def write_folder(
    folder: str | os.PathLike[str], weights: Mapping[str, Tensor], config: Mapping[str, Any], card: str
) -> None:
    """Write a model's files."""
    settings = json.dumps(config, ensure_ascii=False, indent=1) + "\n"
    replace_files(Path(folder), {WEIGHTS: packed(weights), CONFIG: settings.encode(), CARD: card.encode()})


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the configuration of a model folder."""
    path = Path(folder)
    if not path.is_dir():
        raise ModelError(f"{path} is not a model folder: there is no such folder")
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise ModelError(f"{path} is not a model folder: it has no {name}")
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path / CONFIG} is damaged: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise ModelError(f'{path / CONFIG} does not describe a model: it has no object "model"')
    try:
        return load_file(path / WEIGHTS), config
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path / WEIGHTS} is damaged: {error}") from None


def packed(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Tensors as a file of safetensors has them."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, metadata)


def replace_files(folder: Path, content: Mapping[str, bytes]) -> None:
    """Write files by name. What is there already is replaced only when all of them are safely on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = {name: folder / f".{name}.{os.getpid()}" for name in content}
    try:
        for name, file in temporary.items():
            with file.open("wb") as stream:
                stream.write(content[name])
                stream.flush()
                os.fsync(stream.fileno())
        for name, file in temporary.items():
            os.replace(file, folder / name)
    finally:
        for file in temporary.values():
            file.unlink(missing_ok=True)
