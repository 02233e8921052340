"""What holds for all tests."""

import os
import sys

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)  # the tensors of a test are tiny: a second thread would only wait for the first
os.environ["ACCELERATE_USE_CPU"] = "true"  # training is compared to the bit, which a GPU does not promise

# Loaded before any test is imported, so that tests with settings of their own have the rest from here.
settings.register_profile("ci", derandomize=True, deadline=None)  # the same examples in every run
settings.register_profile("fuzz", max_examples=1000, deadline=None, print_blob=True)  # other ones: make fuzz
settings.load_profile("ci")


# What takes seconds: trainings, all gradients, a million nodes. `make quick` leaves it out.
SLOW = (
    "check/test_mutations.py",
    "check/test_parameters.py",
    "check/test_rows.py",
    "cli/test_answers.py",
    "cli/test_members.py",
    "cli/test_train.py",
    "cli/test_use.py",
    "data/test_graphs.py::test_a_graph_of_a_million",
    "data/test_graphs.py::test_a_stream",
    "loss/test_structural.py::test_activations",
    "loss/test_structural.py::test_gradients_match_central_differences",
    "loss/test_structural.py::test_ten_thousand",
    "morph/test_chain.py::test_every_operator_after_every_other_and_once_more[",
    "morph/test_merge.py::test_estimators_point",
    "morph/test_merge.py::test_the_enumerated_truth",
    "morph/test_merge.py::test_training_moves",
    "objective/test_structural_objective.py::test_at_convergence",
    "objective/test_training.py",
    "test_assignment.py::test_a_million",
    "test_examples.py",
    "test_graph_model.py",
    "test_members.py",
    "test_readme.py",
    "test_training.py",
)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(SLOW):
            item.add_marker("slow")


@pytest.fixture
def calls():
    """Counts the functions, of Python and of C, that are called: work by a measure that no other job disturbs."""

    def count(run):
        seen = 0

        def tally(frame, event, argument):
            nonlocal seen
            seen += event in ("call", "c_call")

        sys.setprofile(tally)
        try:
            run()
        finally:
            sys.setprofile(None)
        return seen

    return count
