"""Unicode normalization forms: which one texts, or labels of graphs, have, and how others are brought into it."""

from collections.abc import Iterable
from typing import Literal, get_args
from unicodedata import is_normalized, normalize

from grapheme_nn.data.graphs import Graph

Form = Literal["NFC", "NFD", "none"]
FORMS: tuple[Form, ...] = get_args(Form)


def common_form(sides: Iterable[str | Graph]) -> Form | None:
    """The form that all of them have, NFC where they have both; None where some have neither, or each another one."""
    texts = {text for side in sides for text in (side.nodes if isinstance(side, Graph) else (side,))}
    if all(is_normalized("NFC", text) for text in texts):
        return "NFC"
    return "NFD" if all(is_normalized("NFD", text) for text in texts) else None


def normalized(side: str | Graph, form: Form) -> str | Graph:
    """A text, or a graph with its labels, in a form; `none` leaves it as it is."""
    if form == "none":
        return side
    if isinstance(side, Graph):
        return side._replace(nodes=tuple(normalize(form, label) for label in side.nodes))
    return normalize(form, side)
