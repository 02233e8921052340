"""Inputs that come bit by bit are the inputs of the whole file."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import DataError, Pair, read_inputs, stream_inputs


class Pieces(io.BufferedIOBase):
    """A stream that gives the pieces it was made of, one at a time, as a pipe does."""

    def __init__(self, *pieces):
        self.pieces = [piece for piece in pieces if piece]

    def read1(self, size=-1):
        return self.pieces.pop(0) if self.pieces else b""


def lines_of(stream, name="input"):
    """All lines; none where the stream is refused as empty."""
    try:
        return [line for part in stream_inputs(stream, name) for line in part]
    except DataError as error:
        if "is empty" in str(error):
            return []
        raise


@given(
    st.lists(
        st.sampled_from([b"a", b"\tb", b"\n", b"\r\n", b"\n\n", "é".encode(), b"\xff", b"\xef\xbb\xbf"]), max_size=12
    )
)
def test_pieces_give_what_the_whole_gives(pieces):
    data = b"".join(pieces)
    try:
        whole = read_inputs(io.BytesIO(data), skip_bad_lines=True)
    except DataError:
        whole = []
    lines = lines_of(Pieces(*pieces))
    assert [line.pair for line in lines if not line.is_bad] == whole
    assert len(lines) == len(data.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")) or not lines


def test_a_line_that_comes_alone_is_handed_on_alone():
    parts = list(stream_inputs(Pieces(b"one\n", b"two\nth", b"ree\n", b"\n\n"), "input"))
    assert [[line.text for line in part] for part in parts] == [["one"], ["two"], ["three"], ["", ""]]


def test_lines_and_bytes_are_counted_from_the_beginning_of_the_stream():
    *good, bad = lines_of(Pieces(b"one\n", b"two\n\xe9\n"), "words.txt")
    assert [line.pair for line in good] == [Pair("one", ""), Pair("two", "")]
    assert bad.place == "words.txt:3"
    assert bad.text == "\\xe9"
    assert bad.problem.startswith("not UTF-8 (byte 0xe9 at offset 8 of the file)")


def test_a_nul_byte_late_in_the_stream_is_a_bad_line_and_at_its_beginning_a_binary_file():
    one, bad, two = lines_of(Pieces(b"one\n\0\ntwo\n"))
    assert bad.problem.startswith("a NUL byte at offset 4")
    assert not one.is_bad
    assert not two.is_bad
    with pytest.raises(DataError, match="looks like a binary file"):
        lines_of(Pieces(b"\x7fELF\0\n"))


def test_what_comes_first_tells_whether_a_line_must_be_an_object():
    given = [b'{"input": "a"}\n', b"{broken\n", b"text\n", b'{"input": "b"}\n']
    assert [line.is_bad for line in lines_of(Pieces(*given))] == [False, True, True, False]
    assert [line.is_bad for line in lines_of(Pieces(b"text\n", *given))] == [False] * 5


def test_a_header_says_what_the_columns_of_later_blocks_are():
    lines = lines_of(Pieces(b"id\tsource\n", b"7\tabc\n"))
    assert [line.is_header for line in lines] == [True, False]
    assert lines[1].pair == Pair("abc", "")


def test_a_csv_comes_row_by_row_however_it_is_cut():
    lines = lines_of(Pieces(b'"a\nb', b'",c\n"d"', b"\n"), "x.csv")
    assert [line.pair for line in lines] == [Pair("a\nb", "c"), Pair("d", "")]
