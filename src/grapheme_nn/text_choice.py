"""What texts ask for, by looking at them: a normalization form, and a unit (symbols between spaces, jamo of Hangul)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unicodedata import category

from grapheme_nn.config import TrainConfig
from grapheme_nn.data import Graph, Pair
from grapheme_nn.normalization import common_form, normalized

# Symbols between spaces, such as phones (`k æ t`, `K AE1 T`): short, few different ones, and most texts have several.
LONGEST_SYMBOL = 2.2  # characters, on average; words are longer
MOST_SYMBOLS = 200  # different ones
FEWEST_USES = 4  # of a symbol, on average
MARKS = ("Mn", "Lm", "Sk")  # parts of a character rather than characters: t̪ and tʰ are as short as t


def choose_forms(config: TrainConfig, pairs: Sequence[Pair]) -> tuple[TrainConfig, list[str]]:
    """The configuration with the normalization forms decided, and sentences on what was found."""
    values: dict[str, Any] = {}
    notes = []
    for at, name in enumerate(("input", "target")):
        if getattr(config, f"{name}_normalization") is None:
            form = common_form([pair[:2][at] for pair in pairs])
            values[f"{name}_normalization"] = form or "NFC"
            if form != "NFC":
                found = "in NFD" if form else "in no common normalization form"
                notes.append(f"{name}s are {found}: {name} normalization {form or 'NFC'}")
    return replace(config, **values), notes


def in_forms(config: TrainConfig, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in the normalization forms of a configuration."""
    first, second = config.input_normalization or "none", config.target_normalization or "none"
    return [
        pair._replace(input=normalized(pair.input, first), target=normalized(pair.target, second)) for pair in pairs
    ]


def choose_units(config: TrainConfig, pairs: Sequence[Pair]) -> tuple[TrainConfig, list[str]]:
    """The configuration with the units decided, and sentences on what was found.

    Where most letters of one side are Hangul, the other is decomposed as well if it has any, so that it can be copied.
    """
    values: dict[str, Any] = {}
    notes = []
    sides = {"input": [pair.input for pair in pairs], "target": [pair.target for pair in pairs]}
    hangul = {name: _hangul_share(_texts(side)) for name, side in sides.items()}
    for name, side in sides.items():
        if getattr(config, f"{name}_unit") is not None:
            continue
        unit, found = "codepoint", ""
        if isinstance(side[0], Graph):
            unit = "graph"
        elif _are_symbols(_texts(side)):
            unit, found = "symbol", "symbols between spaces"
        elif hangul[name] > 0 and max(hangul.values()) > 0.5:
            unit, found = "decomposed", "Hangul, whose syllables are made of jamo"
        values[f"{name}_unit"] = unit
        notes += [f"{name}s are {found}: {name} unit {unit}"] if found else []
    return replace(config, **values), notes


def _texts(side: Sequence[str | Graph]) -> list[str]:
    return [text for text in side if isinstance(text, str) and text]


def _are_symbols(texts: Sequence[str]) -> bool:
    symbols = Counter(symbol for text in texts for symbol in text.split(" "))
    count = symbols.total()
    if count < 2 * len(texts) or len(symbols) > min(MOST_SYMBOLS, count / FEWEST_USES):
        return False
    size = sum(times * sum(category(part) not in MARKS for part in symbol) for symbol, times in symbols.items())
    letters = sum(times for symbol, times in symbols.items() if any(part.isalpha() for part in symbol))
    # Numbers, such as `12 34 56`, are not for ever the same few; and between two spaces in a row there is no symbol.
    return size <= LONGEST_SYMBOL * count and letters > count / 2 and symbols[""] <= 0.02 * count


def _hangul_share(texts: Sequence[str]) -> float:
    """The share of syllables of Hangul among all letters."""
    letters = Counter(part for text in texts for part in text if part.isalpha())
    hangul = sum(times for part, times in letters.items() if "가" <= part <= "힣")
    return hangul / max(letters.total(), 1)
