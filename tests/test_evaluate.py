"""Figures that judge a model: worked out by hand, and by trying all ways."""

from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn import UNITS, text_to_graph
from grapheme_nn.evaluate import Confusion, align, confusions, evaluate, structural_loss
from grapheme_nn.graph import units_of
from grapheme_nn.loss import StructuralLoss

SHORT = st.text("abc ", max_size=7)


def edits_by_trying(one, other):
    @cache
    def least(i, j):
        if i == 0 or j == 0:
            return i + j
        replace = least(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(replace, least(i - 1, j) + 1, least(i, j - 1) + 1)

    return least(len(one), len(other))


def test_figures_of_three_words_worked_out_by_hand():
    predicted, targets = ["kitten", "ab", "abc"], ["sitting", "ab", "ac"]
    found = evaluate(predicted, targets)
    assert found.pairs == 3
    assert found.exact_match == pytest.approx(1 / 3)
    assert found.word_error_rate == pytest.approx(2 / 3)
    assert found.symbol_error_rate == pytest.approx((3 + 0 + 1) / (7 + 2 + 2))
    assert found.similarity == pytest.approx((4 / 7 + 1 + 2 / 3) / 3)
    assert confusions(predicted, targets) == [
        Confusion(None, "b", 1),
        Confusion("g", None, 1),
        Confusion("i", "e", 1),
        Confusion("s", "k", 1),
    ]


def test_common_confusions_come_first():
    assert confusions(["xa", "xb", "c"], ["ya", "yb", "cd"]) == [Confusion("y", "x", 2), Confusion("d", None, 1)]


def test_symbols_are_counted_whole():
    assert evaluate(["t͡ʃ a"], ["t͡s a b"], "symbol").symbol_error_rate == pytest.approx(2 / 3)
    assert confusions(["t͡ʃ a"], ["t͡s a b"], "symbol") == [Confusion("b", None, 1), Confusion("t͡s", "t͡ʃ", 1)]


def test_canonically_equivalent_texts_are_the_same_where_units_are_decomposed():
    assert evaluate(["é"], ["e\u0301"], "decomposed").exact_match == 1
    assert evaluate(["é"], ["e\u0301"]).exact_match == 0


def test_empty_texts_have_figures_too():
    assert evaluate([""], [""]) == (1.0, 1, 0.0, 0.0, 1.0, 0.0)
    assert evaluate(["ab"], [""])[:5] == (0.0, 1, 1.0, 2.0, 0.0)
    assert evaluate([""], ["ab"])[:5] == (0.0, 1, 1.0, 1.0, 0.0)


@given(st.lists(st.tuples(SHORT, SHORT), min_size=1, max_size=5))
def test_edits_are_as_few_as_trying_all_ways_finds(pairs):
    predicted, targets = zip(*pairs, strict=True)
    edits = sum(edits_by_trying(one, other) for one, other in pairs)
    assert evaluate(predicted, targets).symbol_error_rate == edits / max(sum(map(len, targets)), 1)
    assert sum(confusion.times for confusion in confusions(predicted, targets)) == edits


@given(SHORT, SHORT)
def test_an_alignment_spells_both_texts(one, other):
    pairs = align(one, other)
    assert "".join(left for left, _ in pairs if left is not None) == one
    assert "".join(right for _, right in pairs if right is not None) == other
    assert (None, None) not in pairs


def test_of_several_alignments_with_the_fewest_edits_it_is_always_the_same():
    assert align("ab", "ba") == [(None, "b"), ("a", "a"), ("b", None)]
    assert align("abcb", "acb") == [("a", "a"), ("b", None), ("c", "c"), ("b", "b")]
    assert align(["t͡ʃ", "a"], ["t͡s", "a"]) == [("t͡ʃ", "t͡s"), ("a", "a")]


def test_units_with_the_same_hash_are_different_units():
    assert evaluate(["a  b"], ["a \0 b"], "symbol").symbol_error_rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("unit", UNITS)
@given(text=st.text() | SHORT | st.text("각e\u0301👩‍👩‍👧 "))
def test_there_is_a_unit_for_each_node(unit, text):
    assert len(units_of(text, unit)) == text_to_graph(text, unit).num_nodes


def test_structural_loss_is_zero_for_the_target_alone_and_the_same_in_any_batch():
    assert structural_loss(["abc"], ["abc"]) == pytest.approx(0, abs=1e-6)
    alone = [structural_loss([one], [other]) for one, other in (("ab", "abc"), ("x" * 40, "y"), ("", "a"))]
    assert min(alone) > 0
    assert structural_loss(["ab", "x" * 40, ""], ["abc", "y", "a"]) == pytest.approx(sum(alone) / 3, rel=1e-5)


def test_long_texts_do_not_fill_the_memory():
    long = "abcdefgh" * 250
    assert structural_loss([long, "a"], [long[1:], "a"]) > 0


@pytest.mark.parametrize(
    ("predicted", "targets", "unit", "says"),
    [
        (["a"], ["a", "b"], "codepoint", "1 predictions for 2 targets"),
        ([], [], "codepoint", "nothing to evaluate"),
        (["a"], ["a"], "letter", "unknown unit 'letter'"),
    ],
)
@pytest.mark.parametrize("figure", [evaluate, confusions, structural_loss])
def test_what_cannot_be_judged_is_refused(figure, predicted, targets, unit, says):
    with pytest.raises(ValueError, match=says):
        figure(predicted, targets, unit)


def test_a_thousand_words_are_one_batch_of_the_structural_loss(monkeypatch):
    random, sizes, forward = Random(0), [], StructuralLoss.forward

    def counting(self, predicted, target):
        sizes.append(predicted.num_graphs)
        return forward(self, predicted, target)

    monkeypatch.setattr(StructuralLoss, "forward", counting)
    words = ["".join(random.choices("abcdefgh", k=12)) for _ in range(2000)]
    structural_loss(words[:1000], words[1000:])
    assert sizes == [1000]
    structural_loss(["a" * 2000] * 3, ["b" * 2000] * 3)  # 4 million entries each: one at a time
    assert sizes == [1000, 1, 1, 1]
