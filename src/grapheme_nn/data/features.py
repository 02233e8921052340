"""Tokenisation of morphological feature strings, such as UniMorph's, into units."""

import re
from functools import lru_cache


@lru_cache(maxsize=65536)
def split_features(text: str) -> tuple[str, ...]:
    """The small units of a string of features: `N;ABL(PL;PSS(2,PL))` is made of N, ABL, ABL:PL, PSS, PSS:2, PSS:PL.

    It is cut at `;`, `,` and brackets, so that a model which knows the units can do a combination it has never seen.
    A unit in brackets carries the name before them, or the plural of a noun and the plural of its possessor would be
    one unit, and `ABL(SG;PSS(1,PL))` and `ABL(PL;PSS(1,SG))` would differ in nothing but the order. Where brackets do
    not match, they are ordinary characters, and only `;` cuts.
    """
    units: list[str] = []
    heads: list[str] = []
    for part, mark in re.findall(r"([^;,()]*)([;,()]|$)", text):
        name = part.strip()
        if name:
            units.append(f"{heads[-1]}:{name}" if heads and heads[-1] and mark != "(" else name)
        if mark == "(":
            heads.append(name)
        elif mark == ")":
            if not heads:
                heads.append("unmatched")
                break
            heads.pop()
    if heads:
        units = [part.strip() for part in text.split(";") if part.strip()]
    return tuple(units)
