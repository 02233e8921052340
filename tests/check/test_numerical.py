"""`check_gradients` tells right gradients from wrong ones, for anybody's function."""

import pytest
import torch

from grapheme_nn.check import check_gradients
from grapheme_nn.morph import Merge, Split

EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])


def point(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype).requires_grad_()


class TwiceTooMuch(torch.autograd.Function):
    """x^2 with the gradient 4 x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, gradient):
        return 4 * ctx.saved_tensors[0] * gradient


def test_a_right_gradient_passes_and_a_wrong_one_does_not():
    assert check_gradients(lambda x: x**2, point(3))
    result = check_gradients(TwiceTooMuch.apply, point(3))
    assert not result
    assert result.inputs[0].error == pytest.approx(0.5)
    assert "FAIL" in str(result)


def test_one_wrong_entry_of_many_is_found():
    def skipping(x):
        return torch.cat([x[:-1] ** 2, x[-1:].detach() ** 2])

    assert not check_gradients(skipping, point(40))


@pytest.mark.parametrize("steep", [1.0, 30.0, 300.0])
def test_steep_functions_are_no_false_alarm(steep):
    result = check_gradients(lambda x: (steep * x).sin(), point(20))
    assert result, str(result)


@pytest.mark.parametrize("distance", [3e-6, 1e-6, -1e-5, 1e-4])
def test_a_kink_beside_the_point_is_no_false_alarm(distance):
    x = torch.tensor([distance, 1.0, -1.0], dtype=torch.float64, requires_grad=True)
    assert check_gradients(lambda x: x.relu() + x.square(), x)


def test_the_error_is_relative_to_the_largest_entry():
    def slightly_wrong(x):
        return x * (1 + 1e-4) - (x * 1e-4).detach()

    (found,) = check_gradients(lambda x: x.sum() * 1000 + slightly_wrong(x).sum() * 0, point(2)).inputs
    assert found.passed
    (found,) = check_gradients(slightly_wrong, point(2), surrogate=lambda x: x).inputs
    assert found.error == pytest.approx(1e-4, rel=1e-3)
    assert not found.passed
    assert check_gradients(slightly_wrong, point(2), surrogate=lambda x: x, limit=1e-3)


def test_dropout_left_on_is_said_to_be_random():
    result = check_gradients(torch.nn.Dropout(0.5), point(30))
    assert not result
    assert "is dropout left on" in str(result)


def test_an_input_without_influence_cannot_learn():
    result = check_gradients(lambda x, y: x * 2 + y.detach() * 0, [point(2), point(2)])
    assert [each.passed for each in result.inputs] == [True, False]
    assert result.inputs[1].zeros == result.inputs[1].entries == 2
    assert "cannot learn" in result.inputs[1].note


def test_zeros_are_counted():
    (found,) = check_gradients(lambda x: x.relu(), torch.tensor([1.0, -1.0, -2.0], requires_grad=True)).inputs
    assert (found.entries, found.zeros) == (3, 2)


def test_a_morph_is_checked_with_all_it_hands_on():
    split = Split(3, 2).double()
    assert check_gradients(lambda x: split(x, EDGES), point(4, 3))
    soft = Merge(0.5, estimator="soft", temperature=0.5).double()
    named = {"x": point(4, 3), "edge_weight": torch.ones(3, dtype=torch.float64, requires_grad=True)}
    result = check_gradients(lambda x, edge_weight: soft(x, EDGES, edge_weight), named)
    assert result
    assert [each.name for each in result.inputs] == ["x", "edge_weight"]


def test_a_straight_through_gradient_is_none_of_the_values_but_of_its_surrogate():
    def step(x):
        return (x > 0) + x.sigmoid() - x.sigmoid().detach()

    assert not check_gradients(step, point(5))
    assert check_gradients(step, point(5), surrogate=torch.sigmoid)


def test_single_precision_is_converted():
    (found,) = check_gradients(lambda x, y: (x * y).sin(), [point(3, dtype=torch.float32), torch.ones(3)]).inputs
    assert found.error < 1e-9


def test_a_decision_beside_the_point_is_no_false_alarm():
    x = torch.tensor([0.5 + 1e-6, 0.2, 0.9], dtype=torch.float64, requires_grad=True)
    assert check_gradients(lambda x: x[x > 0.5].square(), x)  # a step of 1e-5 leaves out the first


def test_an_output_that_is_an_input_is_no_false_alarm():
    assert check_gradients(lambda x: (x, 2 * x), point(3))


def test_what_cannot_be_checked_is_said():
    with pytest.raises(ValueError, match="no input requires a gradient"):
        check_gradients(lambda x: x, torch.ones(2))
    with pytest.raises(TypeError, match="returned a str"):
        check_gradients(lambda x: "x", point(2))


def test_nan_is_not_right():
    result = check_gradients(lambda x: (x - x).sqrt(), point(2))
    assert not result
    assert "wrong by nan" in str(result)


@pytest.mark.parametrize(
    ("fn", "inputs", "sentence"),
    [
        (lambda x: x, torch.zeros(0, requires_grad=True), "input 0 is empty"),
        (lambda x: None, torch.ones(2, requires_grad=True), "returned no floats"),
        (lambda x: x.long(), torch.ones(2, requires_grad=True), "returned no floats"),
        (lambda x: x / 0, torch.ones(2, requires_grad=True), "is not finite"),
        (lambda x: x.real, torch.ones(2, dtype=torch.complex64, requires_grad=True), "input 0 is complex"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_sentence(fn, inputs, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_gradients(fn, inputs)


def test_inputs_that_are_no_tensors_are_refused():
    with pytest.raises(TypeError, match="inputs must be a tensor, a sequence or a mapping of them, but is a float"):
        check_gradients(lambda x: x, 2.0)


def test_complex_outputs_count_with_both_parts():
    x = torch.randn(3, requires_grad=True)
    assert check_gradients(torch.fft.rfft, x)
    assert not check_gradients(lambda x: torch.complex(x, x.square().detach() + 2 * x), x)
