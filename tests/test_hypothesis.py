"""Property tests try the same examples in every run; `make fuzz` tries others."""

from hypothesis import given, settings
from hypothesis import strategies as st


def test_examples_are_the_same_in_every_run_also_where_a_test_has_its_own_settings():
    seen = []

    @settings(max_examples=10)
    @given(st.integers())
    def tried(number):
        seen.append(number)

    tried()
    first = seen.copy()
    seen.clear()
    tried()
    assert seen == first
    assert len(set(first)) > 3
