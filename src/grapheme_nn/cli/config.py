"""Training settings from three sources: a preset, changed by a TOML file, changed by command-line options."""

import tomllib
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from grapheme_nn.cli.sentences import Unusable, WrongUse

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from grapheme_nn.config import TrainConfig

T = TypeVar("T", bound="DataclassInstance")


def resolve(preset: str, file: Path | None, options: dict[str, Any]) -> "TrainConfig":
    """The settings to train with; `options` that are None were not given."""
    from grapheme_nn.config import PRESETS

    if preset not in PRESETS:
        raise WrongUse(f"there is no preset {preset!r}: choose one of {', '.join(PRESETS)}")
    config = PRESETS[preset]
    if file is not None:
        config = _changed(config, _read(file), str(file))
    try:
        return replace(config, **{name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise WrongUse(str(error)) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Unusable(f"{file} does not exist: check the path") from None
    except IsADirectoryError:
        raise Unusable(f"{file} is a folder: give a file inside it") from None
    except UnicodeDecodeError:
        raise Unusable(f"{file} is not UTF-8, so it is not TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise Unusable(f"{file} is not TOML: {error}") from None


def _changed(config: T, values: dict[str, Any], where: str) -> T:
    """The settings with the values of a table in their places."""
    types = get_type_hints(type(config))
    names = [field.name for field in fields(config)]
    changes = {}
    for name, value in values.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(names)}"
            raise Unusable(f"{where}: there is no setting {name!r}: {hint}")
        old = getattr(config, name)
        if is_dataclass(old) and not isinstance(old, type) and isinstance(value, dict):
            changes[name] = _changed(old, value, f"{where}, table {name}")
        else:
            changes[name] = _fitting(name, value, types[name], where)
    try:
        return replace(config, **changes)
    except ValueError as error:
        raise Unusable(f"{where}: {error}") from None


def _fitting(name: str, value: Any, wanted: Any, where: str) -> Any:
    """The value, if it is of the kind that the setting has."""
    kinds = _kinds(wanted)
    if tuple in kinds and isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(value)
    if type(value) in kinds or value in kinds:  # a type, or one of the words of a Literal
        return value
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
        return float(value)
    raise Unusable(f"{where}: {name} = {value!r} does not fit: it should be {_named(wanted)}")


def _named(wanted: Any) -> str:
    """A type in words: `float | None` is a number."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", tuple: "a list"}
    return " or ".join(words.get(kind, repr(kind)) for kind in _kinds(wanted) if kind is not type(None))


def _kinds(wanted: Any) -> list[Any]:
    """The types, and the words of a Literal, that a type allows."""
    if isinstance(wanted, UnionType) or get_origin(wanted) is Union:
        return [kind for part in get_args(wanted) for kind in _kinds(part)]
    return list(get_args(wanted)) if get_origin(wanted) is Literal else [get_origin(wanted) or wanted]
