"""Test cases of the gradient check: every operator and loss. One more operator is one more line in one of the files."""

from grapheme_nn.check.subjects.layers import LAYERS
from grapheme_nn.check.subjects.losses import LOSSES
from grapheme_nn.check.subjects.morphs import MORPHS
from grapheme_nn.check.subjects.subject import Case, Subject

__all__ = ["SUBJECTS", "Case", "Subject"]

SUBJECTS: tuple[Subject, ...] = (*MORPHS, *LAYERS, *LOSSES)
