"""The room of `check gradients`: every operator, every loss and every parameter, against differences."""

from collections.abc import Iterator

import torch

from grapheme_nn.check.estimators import check_estimators
from grapheme_nn.check.nets import FEATURED, exact_net
from grapheme_nn.check.numerical import Compared, check_gradients
from grapheme_nn.check.parameters import ParameterReport, gradient_report
from grapheme_nn.check.subjects import SUBJECTS, Subject
from grapheme_nn.check.table import Row
from grapheme_nn.settings import LossName

NETS: tuple[LossName, ...] = ("transport", "path", "ctc")


def rows() -> Iterator[Row]:
    """Operators and losses below 1e-6, every parameter end to end below 1e-4 and none dead, estimators as promised."""
    for subject in SUBJECTS:
        yield from subject_rows(subject)
    for loss in NETS:
        yield from net_rows(loss)
    yield from check_estimators()


def subject_rows(subject: Subject) -> Iterator[Row]:
    """A row for each input of a subject."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        case = subject.make()
        result = check_gradients(case.fn, case.inputs, surrogate=case.surrogate)
    for each in result.inputs:
        yield _row(subject.group, f"{subject.name}: {each.name}" if subject.name else each.name, each)


def net_rows(loss: LossName) -> Iterator[Row]:
    """A row for each parameter of a small network: text in, loss out, through merge and split."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        report = gradient_report(exact_net(loss), FEATURED)
    for each in report.parameters:
        yield _row(f"net, {loss}", each.name, each)


def _row(group: str, name: str, each: Compared | ParameterReport) -> Row:
    figures = {"worst error": each.error, "compared": each.entries, "zero": each.zeros}
    return Row("gradients", group, name, each.passed, figures, each.note)
