"""Model folders: weights, what they mean, and a card to read; nothing in them is ever executed.

The folder of an ensemble has no weights of its own, but a folder for each of its models: `members/1`, `members/2`, ...
"""

import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from time import sleep
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from grapheme_nn import __version__

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
MEMBERS = "members"  # of an ensemble, the folder of its models
FORMAT = 1  # of `config.json`
# What `config.json` may have: its format, the version that wrote it, the SHA-256 of the weights, what the network is
# made of, and of its training the settings, the data and what came of it.
KEYS = ("format", "library", "weights", "model", "training", "data", "result")
# Of an ensemble: its members' folders, the calibration of its vote, and what its members learned from and came of it.
ENSEMBLE_KEYS = ("format", "library", "members", "weights", "score_slope", "score_offset", "data", "result")


class ModelError(ValueError):
    """A folder does not hold a model that can be used; the message says why in one sentence."""


def write_folder(
    folder: str | os.PathLike[str], weights: Mapping[str, Tensor], config: Mapping[str, Any], card: str
) -> None:
    """Write a model's files; `config` has those of `KEYS` that are not known here."""
    content = packed(weights)
    known = {"format": FORMAT, "library": __version__, "weights": sha256(content).hexdigest()}
    replace_files(Path(folder), {WEIGHTS: content} | _descriptions(known | dict(config), card))


def write_ensemble(folder: str | os.PathLike[str], config: Mapping[str, Any], card: str) -> None:
    """Write what is said of an ensemble; `config` has those of `ENSEMBLE_KEYS` that are not known here."""
    known = {"format": FORMAT, "library": __version__}
    replace_files(Path(folder), _descriptions(known | dict(config), card))


def update_folder(folder: str | os.PathLike[str], config: Mapping[str, Any], card: str) -> None:
    """Change what is said of a model, by these of `KEYS` and the card, and leave its weights."""
    path = Path(folder)
    replace_files(path, _descriptions(read_config(path) | dict(config), card))


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the configuration of a model folder."""
    path = Path(folder)
    config = read_config(path)
    if "members" in config:
        raise ModelError(f"{path} holds {len(config['members'])} models that vote: load it by grapheme_nn.load")
    content = _bytes(path / WEIGHTS)
    if not _belong(config, content):
        sleep(0.2)  # a training may be replacing one after the other
        config, content = read_config(path), _bytes(path / WEIGHTS)
    try:
        weights = load(content)
    except SafetensorError as error:
        raise ModelError(f"{path / WEIGHTS} is damaged: {error}") from None
    if not _belong(config, content):
        raise ModelError(f"{path / WEIGHTS} is damaged, or not what {CONFIG} was written for: copy the whole folder")
    return weights, config


def read_config(folder: Path) -> dict[str, Any]:
    """What `config.json` says of a model or an ensemble, checked as far as that goes without knowing networks."""
    try:
        missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
        if folder.is_file():
            raise ModelError(f"{folder} is a file: give the folder of a model, as train writes it")
        if not folder.is_dir():
            raise ModelError(f"{folder} is not a model folder: there is no such folder")
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}") from None
    if CONFIG in missing:
        raise ModelError(f"{folder} is not a model folder: it has no {CONFIG}")
    content = _bytes(folder / CONFIG)
    config: dict[str, Any]
    try:
        config = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{folder / CONFIG} is damaged: {error}") from None
    is_ensemble = isinstance(config, dict) and "members" in config
    if missing and not is_ensemble:
        raise ModelError(f"{folder} is not a model folder: it has no {WEIGHTS}")
    if not is_ensemble and (not isinstance(config, dict) or not isinstance(config.get("model"), dict)):
        raise ModelError(f'{folder / CONFIG} does not describe a model: it has no object "model"')
    for key in ("training", "data", "result"):
        if not isinstance(config.get(key, {}), dict):
            raise ModelError(f'{folder / CONFIG} is damaged: "{key}" is no object')
    if config.get("format", FORMAT) != FORMAT:
        able = f"version {__version__} of grapheme-nn reads format {FORMAT}"
        raise ModelError(f"{folder / CONFIG} has format {config['format']!r}, but {able}: use a newer version")
    unknown = [key for key in config if key not in (ENSEMBLE_KEYS if is_ensemble else KEYS)]
    if unknown:
        raise ModelError(f"the configuration of {folder} has the unknown key {unknown[0]!r}")
    if is_ensemble:
        _check_ensemble(folder, config)
    return config


def holds_members(folder: Path) -> bool:
    """Whether there are the models of an ensemble in a folder."""
    return (folder / MEMBERS / "1" / CONFIG).is_file()


def read_card(folder: str | os.PathLike[str]) -> str:
    """The card of a model folder, empty where it has none."""
    file = Path(folder) / CARD
    return _bytes(file).decode(errors="replace") if file.is_file() else ""


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


def _descriptions(config: Mapping[str, Any], card: str) -> dict[str, bytes]:
    texts = {CONFIG: json.dumps(config, ensure_ascii=False, indent=1) + "\n", CARD: card}
    # Half a surrogate pair, which UTF-8 has not, is escaped as JSON has it.
    return {name: text.encode(errors="backslashreplace") for name, text in texts.items()}


def _check_ensemble(folder: Path, config: Mapping[str, Any]) -> None:
    """A `ModelError` where the members are not folders below this one, or the calibration is none."""
    members = config["members"]
    if not isinstance(members, list) or not members:
        raise ModelError(f'{folder / CONFIG} is damaged: "members" is no list of folders')
    for member in members:
        if not isinstance(member, str) or not re.fullmatch(rf"{MEMBERS}/[0-9]+", member):
            wanted = f"a member must be {MEMBERS}/1 or the like"
            raise ModelError(f"{folder / CONFIG} is damaged: {wanted}, but is {member!r:.80}")
    weights = config.get("weights")
    if not isinstance(weights, list) or len(weights) != len(members):
        raise ModelError(f'{folder / CONFIG} is damaged: "weights" has not the SHA-256 of each member')
    for key in ("score_slope", "score_offset"):
        value: Any = config.get(key)
        if type(value) not in (int, float) or not isfinite(value) or (key == "score_slope" and value <= 0):
            wanted = "number above 0" if key == "score_slope" else "number"
            raise ModelError(f"{folder / CONFIG} is damaged: {key} is no {wanted}, but {value!r:.80}")


def _belong(config: Mapping[str, Any], content: bytes) -> bool:
    """Whether these are the weights that the configuration was written with, as far as it says."""
    return "weights" not in config or config["weights"] == sha256(content).hexdigest()


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from None
