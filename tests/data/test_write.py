import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import DataError, Pair, read_pairs, write_pairs

texts = st.text(st.characters(exclude_categories=["Cs"]))
units = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
pairs = st.builds(Pair, texts.filter(bool), texts, st.lists(units).map(tuple))


@given(st.lists(pairs, min_size=1))
def test_jsonl_reads_back_as_the_same_pairs(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "round.jsonl"
    write_pairs(pairs, path)
    assert read_pairs(path) == pairs


@given(st.lists(pairs, min_size=1))
def test_tsv_reads_back_as_the_same_pairs_or_is_refused(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "round.tsv"
    try:
        write_pairs(pairs, path)
    except DataError:
        return
    assert read_pairs(path) == pairs


def test_tsv_with_features_in_some_pairs_reads_back(tmp_path):
    pairs = [Pair("a", "b"), Pair("c", "", ("N", "NOM:PL"))]
    write_pairs(pairs, tmp_path / "pairs.tsv")
    assert (tmp_path / "pairs.tsv").read_bytes() == b"a\tb\t\nc\t\tN;NOM:PL\n"
    assert read_pairs(tmp_path / "pairs.tsv") == pairs


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (Pair("a\tb", "c"), r"its input has '\\t' in it"),
        (Pair("a", "b\nc"), r"its target has '\\n' in it"),
        (Pair("a", "b\r"), r"its target has '\\r' in it"),
        (Pair("a\0", "b"), r"its input has '\\x00' in it"),
        (Pair("\ufeffa", "b"), r"its input has '\\ufeff' in it"),
        (Pair("", "b"), "its input is empty"),
        (Pair("a\ud800", "b"), "it holds half a surrogate pair"),
        (Pair("a", "b", ("N;PL",)), "its features"),
    ],
)
def test_what_a_tsv_cannot_hold_is_refused_by_a_sentence(tmp_path, pair, reason):
    with pytest.raises(DataError, match=f"pair 2 cannot be written to .*: {reason}"):
        write_pairs([Pair("x", "y"), pair], tmp_path / "pairs.tsv")
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "pairs.tsv"
    write_pairs([Pair("old", "file")], path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_pairs([Pair("new", "file")], path)
    assert path.read_text() == "old\tfile\n"
    assert os.listdir(tmp_path) == ["pairs.tsv"]


def test_a_name_that_says_no_format_and_a_missing_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"must end in \.tsv or \.jsonl"):
        write_pairs([Pair("a", "b")], tmp_path / "pairs.csv")
    with pytest.raises(DataError, match="there is no folder"):
        write_pairs([Pair("a", "b")], tmp_path / "nowhere" / "pairs.tsv")
