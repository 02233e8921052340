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


@given(
    st.lists(
        st.sampled_from([b"a", b"\tb", b"\n", b"\r\n", b"\n\n", "é".encode(), b"\xff", b"\xef\xbb\xbf"]), max_size=12
    )
)
def test_pieces_give_what_the_whole_gives(pieces):
    def outcome(read):
        try:
            return read()
        except DataError as error:
            return "is empty" if str(error).startswith("input is empty") else "bad"

    whole = outcome(lambda: list(read_inputs(io.BytesIO(b"".join(pieces)))))
    streamed = outcome(lambda: [pair for part in stream_inputs(Pieces(*pieces), "input") for pair in part])
    assert streamed == whole


def test_a_line_that_comes_alone_is_handed_on_alone():
    parts = list(stream_inputs(Pieces(b"one\n", b"two\nth", b"ree\n", b"\n\n"), "input"))
    assert parts == [[Pair("one", "")], [Pair("two", "")], [Pair("three", "")]]


def test_lines_and_bytes_are_counted_from_the_beginning_of_the_stream():
    stream = stream_inputs(Pieces(b"one\n", b"two\n\xe9\n"), "words.txt")
    assert next(stream) == [Pair("one", "")]
    assert next(stream) == [Pair("two", "")]
    with pytest.raises(DataError, match=r"words.txt:3: not UTF-8 \(byte 0xe9 at offset 8 of the file\)"):
        next(stream)


def test_a_nul_byte_late_in_the_stream_is_refused():
    stream = stream_inputs(Pieces(b"one\n", b"\0\n"), "words.txt")
    next(stream)
    with pytest.raises(DataError, match="a NUL byte at offset 4"):
        next(stream)


def test_bad_lines_are_left_out_where_that_is_wished():
    parts = list(stream_inputs(Pieces(b"one\n\ntwo\n"), "words.txt", skip_bad_lines=True))
    assert parts == [[Pair("one", ""), Pair("two", "")]]
    assert parts[0].skipped == ("words.txt:2: the line is empty",)
