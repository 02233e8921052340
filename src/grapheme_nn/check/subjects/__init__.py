"""Everything whose gradient is checked. One more operator is one more line in one of these files."""

from grapheme_nn.check.subjects.layers import LAYERS
from grapheme_nn.check.subjects.losses import LOSSES
from grapheme_nn.check.subjects.morphs import MORPHS
from grapheme_nn.check.subjects.objectives import objectives
from grapheme_nn.check.subjects.subject import Case, Subject

__all__ = ["Case", "Subject", "subjects"]


def subjects() -> tuple[Subject, ...]:
    """All of them, with the objectives that are registered now."""
    return (*MORPHS, *LAYERS, *LOSSES, *objectives())
