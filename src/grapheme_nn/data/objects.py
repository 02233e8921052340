"""The objects of JSONL: under which keys the input, the target and the features are.

    {"input": "abc", "target": "ab"}                    perhaps with "features", a string or a list of strings; in place
                                                        of a text there may be a graph, {"nodes": [...], "edges": [...]}
    {"input_polish": "+ 1 2", "expected_result": 3}     or "expected_symbolic" with a string
    {"question": "What do bees make?", "answer": "honey"}

Any other keys are left alone.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from grapheme_nn.data.features import split_features
from grapheme_nn.data.graphs import Graph, cut, kind_of
from grapheme_nn.data.pairs import BadLine, Pair

# Where the input is, and where the target may be.
KEYS = {"input": ("target",), "input_polish": ("expected_result", "expected_symbolic"), "question": ("answer",)}
GRAPH_KEYS = {"nodes", "edges"}  # those of a graph by itself


class NotFinite(BadLine):
    """A number that Python reads, but JSON cannot hold."""


def as_object(line: str, *, finite: bool = False) -> dict[str, Any]:
    """The JSON object that a line is; where all numbers must be `finite`, `NotFinite` names one that is not."""
    try:
        value = (_FINITE if finite else _ANY).decode(line)
    except NotFinite:
        raise
    except json.JSONDecodeError as error:
        raise BadLine(f"invalid JSON: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadLine(f"the JSON is {kind_of(value)}, but should be an object such as {{...}}")
    return value


def is_graph(value: dict[str, Any]) -> bool:
    """Whether a line of inputs is a graph by itself."""
    return "input" not in value and bool(value.keys() & GRAPH_KEYS)


def other_keys(value: dict[str, Any]) -> dict[str, Any]:
    """What else an object says, such as an id."""
    source = _source(value)
    known = {source, *KEYS[source], "features"}
    return {key: other for key, other in value.items() if key not in known}


def pair_of_object(value: dict[str, Any], with_target: bool) -> Pair:
    """The pair that an object says; without target, also that of a graph by itself."""
    if not with_target and is_graph(value):
        value = {"input": value}
    source = _source(value)
    answers = KEYS[source]
    # A curriculum may have both kinds of answer, one of them null.
    answer = next((key for key in answers if value.get(key) is not None), answers[0])
    for key in (source, answer) if with_target else (source,):
        if key not in value:
            wanted = " or ".join(map(repr, answers)) if key == answer else repr(key)
            raise BadLine(f"there is no key {wanted}; the keys are {_keys(value)}")
    result = value.get(answer, "")
    if answer == "expected_result" and isinstance(result, int | float) and not isinstance(result, bool):
        if not math.isfinite(result):
            raise BadLine(f"{answer!r} is not a finite number")
        result = str(result)
    features = value.get("features") or ()
    if isinstance(features, str):
        features = split_features(features)
    elif not isinstance(features, list | tuple) or not all(isinstance(unit, str) for unit in features):
        raise BadLine("'features' must be a string or a list of strings")
    graphs = source == "input"
    pair = Pair(_side(source, value[source], graphs), _side(answer, result, graphs), tuple(features))
    try:
        "".join((*_texts(pair.input), *_texts(pair.target), *features)).encode()
    except UnicodeEncodeError:
        raise BadLine("an escape such as \\ud800 is half of a surrogate pair, which is no character") from None
    return pair


def _finite(number: str) -> float:
    if not math.isfinite(found := float(number)):
        raise NotFinite(f"the number {cut(number)} is none that JSON can hold: write null, or a string")
    return found


_ANY, _FINITE = json.JSONDecoder(), json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _source(value: dict[str, Any]) -> str:
    return next((key for key in KEYS if key in value), "input")


def _side(key: str, value: object, graphs: bool) -> str | Graph:
    """The input or the target that stands at a key; it may be a graph where `graphs`."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and graphs:
        try:
            return Graph.from_dict(value)
        except ValueError as error:
            raise BadLine(f"{error} (in {key!r})") from None
    raise BadLine(f"{key!r} must be a string{' or a graph' * graphs}, but is {kind_of(value)}")


def _texts(side: str | Graph) -> Sequence[str]:
    """All strings in an input or a target."""
    if isinstance(side, str):
        return (side,)
    return (*side.nodes, *(kind for _, _, kind in side.edges if isinstance(kind, str)))


def _keys(value: dict[str, Any]) -> str:
    return cut(", ".join(map(repr, value))) or "none"
