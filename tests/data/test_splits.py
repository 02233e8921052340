from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import Pair, hold_out, length_batches, overlap

pairs_of_few_inputs = (
    st.lists(st.builds(Pair, st.sampled_from("abcdefgh"), st.sampled_from("xy"), st.sampled_from([(), ("N",)])))
    .filter(lambda pairs: len({pair.input for pair in pairs}) > 1)
    .map(lambda pairs: pairs * (1 + 50 // len(pairs)))
)


def test_overlap_counts_dev_pairs_whose_input_and_features_are_in_train():
    train = [Pair("a", "x", ("N",)), Pair("b", "y")]
    dev = [Pair("a", "other", ("N",)), Pair("a", "x", ("V",)), Pair("b", "y"), Pair("b", "y"), Pair("c", "z")]
    assert overlap(train, dev) == 3
    assert overlap([], dev) == 0


@given(pairs_of_few_inputs, st.floats(0.01, 0.99), st.integers(min_value=0))
def test_held_out_pairs_share_no_input_with_the_rest_and_nothing_is_lost(pairs, share, seed):
    train, held = hold_out(pairs, share, seed=seed)
    assert train
    assert held
    assert not {pair.input for pair in train} & {pair.input for pair in held}
    assert Counter(train + held) == Counter(pairs)


def test_a_tenth_is_held_out_by_chance_and_the_order_is_kept():
    pairs = [Pair(str(number), "x") for number in range(1000)]
    train, held = hold_out(pairs, seed=1)
    assert len(held) == 100
    assert sorted(held, key=lambda pair: int(pair.input)) == held
    assert sorted(train, key=lambda pair: int(pair.input)) == train
    assert hold_out(pairs, seed=1) == (train, held)
    assert hold_out(pairs, seed=2) != (train, held)
    assert 300 < sum(int(pair.input) for pair in held) / len(held) < 700


def test_a_seed_below_0_which_would_be_another_once_more_is_refused():
    with pytest.raises(ValueError, match="seed must be at least 0, but is -7: Python draws the same with 7"):
        hold_out([Pair("a", "x"), Pair("b", "y")], seed=-7)


def test_something_is_held_out_even_where_every_input_is_more_than_the_share():
    pairs = [Pair("a", "x")] * 30 + [Pair("b", "y")] * 25
    assert hold_out(pairs, 0.1, seed=0) == (pairs[:30], pairs[30:])


def test_of_fewer_than_50_pairs_all_are_learned_from_and_judged_by():
    pairs = [Pair(str(number), "x") for number in range(50)]
    for few in (pairs[:1], pairs[:10], pairs[:49]):
        assert hold_out(few, seed=0) == (few, few)
    assert [len(part) for part in hold_out(pairs, seed=0)] == [45, 5]


@pytest.mark.parametrize(("pairs", "inputs"), [([Pair("a", "x")] * 50, 1), ([], 0)])
def test_one_input_cannot_be_split(pairs, inputs):
    with pytest.raises(ValueError, match=f"cannot hold out a part of {inputs} different inputs"):
        hold_out(pairs, seed=0)


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        hold_out([Pair("a", "x"), Pair("b", "y")], share, seed=0)


@given(st.lists(st.integers(0, 30), max_size=300), st.integers(1, 8), st.integers(), st.integers(0, 5))
def test_batches_hold_every_index_once_and_all_but_one_are_full(lengths, batch_size, seed, epoch):
    batches = length_batches(lengths, batch_size, seed=seed, epoch=epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert sum(len(batch) < batch_size for batch in batches) <= 1
    assert all(batch for batch in batches)
    assert batches == length_batches(lengths, batch_size, seed=seed, epoch=epoch)


@given(st.lists(st.integers(0, 30), max_size=300), st.integers(1, 8), st.integers(1, 100))
def test_no_batch_is_longer_than_the_most_but_of_one_index(lengths, batch_size, most):
    batches = length_batches(lengths, batch_size, seed=0, most=most)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= most


def test_long_texts_have_steps_of_few():
    assert [len(batch) for batch in length_batches([600] * 60, 32, seed=0, most=4096)] == [6] * 10


def test_batches_by_length_need_little_padding():
    lengths = [1 + index * 7919 % 40 for index in range(4000)]
    batches = length_batches(lengths, 32, seed=0)
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)  # in any order it is 1.9 times the sum


def test_epochs_and_seeds_have_batches_of_their_own_in_no_order_of_length():
    lengths = [index % 40 for index in range(4000)]
    batches = length_batches(lengths, 32, seed=1, epoch=2)
    assert {frozenset(batch) for batch in batches}.isdisjoint(
        map(frozenset, length_batches(lengths, 32, seed=2, epoch=1))
    )
    assert {frozenset(batch) for batch in batches}.isdisjoint(
        map(frozenset, length_batches(lengths, 32, seed=1, epoch=3))
    )
    longest = [max(lengths[index] for index in batch) for batch in batches]
    assert 0.3 < sum(a < b for a, b in pairwise(longest)) / len(longest) < 0.7


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch_size must be at least 1, but is 0"):
        length_batches([1], 0, seed=0)
