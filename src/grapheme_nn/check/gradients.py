"""`check gradients`: autograd against finite differences, for every operator, every loss and every parameter."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import torch
from torch import Tensor, nn

from grapheme_nn.check.estimators import check_estimators
from grapheme_nn.check.nets import FEATURED, exact_net
from grapheme_nn.check.numerical import Compared, check_gradients
from grapheme_nn.check.parameters import ParameterReport, gradient_report
from grapheme_nn.check.subjects import Subject, subjects
from grapheme_nn.check.table import Figure, Row
from grapheme_nn.registry import OBJECTIVES

ENTRIES = 6  # of each parameter, compared one by one


def rows() -> Iterator[Row]:
    """Operators and losses below 1e-6, every parameter end to end below 1e-4 and none dead, estimators as promised."""
    for subject in subjects():
        yield from subject_rows(subject)
    for loss in OBJECTIVES:
        yield from net_rows(loss)
    yield from check_estimators()


def subject_rows(subject: Subject) -> Iterator[Row]:
    """A row for each input of a subject, or one that says why it could not be checked."""
    try:
        torch.manual_seed(0)
        case = subject.make()
        result = check_gradients(case.fn, case.inputs, surrogate=case.surrogate)
    except Exception as error:  # whatever is wrong with one subject, the others are checked all the same
        yield _row(subject.group, Compared(subject.name, inf, 0, 0, False, _unchecked(error)))
        return
    for each in result.inputs:
        yield _row(subject.group, replace(each, name=f"{subject.name}: {each.name}".removeprefix(": ")))


def net_rows(loss: str) -> Iterator[Row]:
    """A row for each parameter of a small network: text in, loss out, through merge and split."""
    net = exact_net(loss)
    try:
        report = gradient_report(net, FEATURED, entries=ENTRIES)
    except Exception as error:
        yield _row(f"net, {loss}", Compared("", inf, 0, 0, False, _unchecked(error)))
        return
    for each in report.parameters:
        yield _row(f"net, {loss}", each)
    for name, note in unable(net):
        yield _row(f"net, {loss}", Compared(name, inf, 0, 0, False, note))


def unable(net: nn.Module) -> Iterator[tuple[str, str]]:
    """What is meant to learn, in a network of ours, but that no optimiser will move."""
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            yield name, "it is frozen: it cannot learn"
    for name, module in net.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                yield f"{name}.{attribute}".lstrip("."), "it is neither a parameter nor a buffer: it cannot learn"


def _unchecked(error: Exception) -> str:
    return f"it could not be checked: {type(error).__name__}: {error}"


def _row(group: str, each: Compared | ParameterReport) -> Row:
    figures: dict[str, Figure] = {"worst error": each.error, "compared": each.entries, "zero": each.zeros}
    return Row("gradients", group, each.name, each.passed, figures, each.note)
