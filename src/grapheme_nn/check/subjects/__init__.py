"""The corridor of subjects: everything whose gradient is checked. One more operator is one more line in one of them."""

from grapheme_nn.check.subjects.layers import LAYERS
from grapheme_nn.check.subjects.losses import LOSSES
from grapheme_nn.check.subjects.morphs import MORPHS
from grapheme_nn.check.subjects.subject import Case, Subject

__all__ = ["SUBJECTS", "Case", "Subject"]

SUBJECTS: tuple[Subject, ...] = (*MORPHS, *LAYERS, *LOSSES)
