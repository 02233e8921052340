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
