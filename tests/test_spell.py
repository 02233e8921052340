"""What a network spells has a probability, even where it spells nothing."""

from math import exp

import pytest
import torch

from grapheme_nn.model import LOSSES, GraphTransformNet, ModelConfig


@pytest.mark.parametrize("loss", LOSSES)
def test_an_empty_output_has_a_score(loss):
    torch.manual_seed(0)
    model = GraphTransformNet(ModelConfig(("a",), width=16, hidden=8, layers=1, loss=loss)).eval()
    empty = model.log_probabilities(["xy", "xyz"], ["", ""])
    beside = model.log_probabilities(["xy", "xyz"], ["", "a"])
    assert empty[0] == pytest.approx(beside[0], abs=1e-5)
    assert all(0 <= exp(value) <= 1 for value in empty)
