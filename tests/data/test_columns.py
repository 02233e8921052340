"""Columns of TSV and CSV: headers are noticed and named, CSV follows its own rules."""

from io import BytesIO, StringIO

import pytest

from grapheme_nn.data import DataError, Pair, read_inputs, read_pairs, stream_inputs, write_pairs


@pytest.fixture
def read(tmp_path):
    def read(content, name="pairs.tsv", **options):
        (tmp_path / name).write_text(content, newline="")
        return read_pairs(tmp_path / name, **options)

    return read


@pytest.mark.parametrize(
    "header",
    [
        "input\ttarget",
        "word\ttarget",
        "input\tipa",
        "word\tpronunciation",
        "Source\tTarget",
        "question\tanswer",
        "src\ttgt",
        " input \tOUTPUT\r",
    ],
)
def test_a_header_is_left_out_and_named(read, header):
    pairs = read(f"{header}\na\tb\n")
    assert pairs == [Pair("a", "b")]
    assert "pairs.tsv:1: looks like a header (" in pairs.report()
    assert "move it to another line" in pairs.report()


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (
            "word\tgloss\tpronunciation\na\tx\tb\n",
            "a.tsv",
            "input is 'word', target is 'pronunciation'; not read: 'gloss'",
        ),
        ("Word;IPA\na;b\n", "a.csv", "input is 'Word', target is 'IPA'; if it is none"),
        ("orthography\tipa\na\tb\n", "a.tsv", "input is 'orthography', target is 'ipa'"),
        ("# word\tipa\na\tb\n", "a.tsv", "input is '# word', target is 'ipa'"),
        ("ipa\tword\ttranscription\nb\ta\tx\n", "a.tsv", "target is 'ipa', input is 'word'; not read: 'transcription'"),
    ],
)
def test_a_header_may_name_columns_that_are_not_known(read, content, name, says):
    pairs = read(content, name)
    assert pairs == [Pair("a", "b")]
    assert says in pairs.report()
    inputs = read_inputs(StringIO(content)) if name == "a.tsv" else pairs
    assert inputs == [Pair("a", "b")]


def test_of_inputs_a_word_and_what_it_becomes_is_no_header():
    assert read_inputs(StringIO("word\tgloss\na\tb\n")) == [Pair("word", "gloss"), Pair("a", "b")]


@pytest.mark.parametrize("row", ["input\tb", "a\ttarget", "word\tword", "target\ttarget", "# Word\tgloss"])
def test_a_first_row_that_may_be_a_pair_is_one_and_that_it_may_be_a_header_is_told(read, row):
    pairs = read(f"{row}\na\tb\n")
    assert pairs == [Pair(*row.split("\t")), Pair("a", "b")]
    assert f"pairs.tsv:1: looks like a header ({row.replace(chr(9), ', ')}), but is read as a line" in pairs.report()
    assert "if it is a header, remove it, or call its columns input and target" in pairs.report()


def test_that_a_first_row_may_be_a_header_is_told_of_inputs_and_of_columns_with_names_too(read):
    content = "word\tgloss\na\tb\n"
    (lines,) = stream_inputs(BytesIO(content.encode()), "a.tsv")
    assert [line.pair for line in lines] == read(content, columns="input,target")
    assert [line.note for line in lines if line.note] == [
        read(content, columns="input,target").notes[0].split(":1: ")[1]
    ]


@pytest.mark.parametrize("rows", ["inputs\ttargets\na\tb\n", "a\tb\ninput\tb\n"])
def test_a_row_without_a_known_name_and_one_below_the_first_are_told_nothing_of(read, rows):
    assert read(rows).report() == ""


def test_what_is_odd_in_two_ways_is_told_of_both(read):
    report = read("word\tV;PST\twords\nwalk\tV;PST\twalked\n").report()
    assert "1: looks like a header (word, V;PST, words), but is read" in report
    assert "; the second column looks like features" in report


def test_a_row_of_names_below_the_first_is_a_pair(read):
    assert read("a\tb\ninput\ttarget\n") == [Pair("a", "b"), Pair("input", "target")]


def test_a_header_says_what_the_columns_are(read):
    assert read("id\tfeatures\ttarget\tlemma\n7\tV;PST\twalked\twalk\n") == [Pair("walk", "walked", ("V", "PST"))]


def test_columns_that_are_named_win_over_a_header(read):
    pairs = read("word\tcount\tform\nwalk\t7\twalked\n", columns="target,_,input")
    assert pairs == [Pair("walked", "walk")]
    assert len(pairs.skipped) == 1


def test_a_header_alone_is_no_pair(read):
    with pytest.raises(DataError, match=r"looks like a header .*\n.* has no good line"):
        read("input\ttarget\n")


def test_a_pair_that_would_be_read_as_a_header_is_not_written_first(tmp_path):
    with pytest.raises(DataError, match=r"pair 1 cannot be written to .*: it would be read as a header"):
        write_pairs([Pair("word", "form")], tmp_path / "pairs.tsv")
    for name, pairs in (
        ("a.tsv", [Pair("a", "b"), Pair("word", "form")]),
        ("a.jsonl", [Pair("word", "form")]),
    ):
        write_pairs(pairs, tmp_path / name)
        assert read_pairs(tmp_path / name) == pairs


# Lines of three columns whose second may be features, and whether it is.
WORDS = [f"word{number}" for number in range(40)]
SECOND = {
    "several tags, all different": ([f"{word}\tV;PST;{place}\t{word}ed\n" for place, word in enumerate(WORDS)], True),
    "one line": (["walk\tV;PST\twalked\n"], True),
    "a tag that comes again": ([f"{word}\tPL\t{word}s\n" for word in WORDS], True),
    "small tags that come again": ([f"{word}\tv;pst\t{word}ed\n" for word in WORDS], True),
    "features in the third": ([f"{word}\t{word}ed\tV;PST\n" for word in WORDS], False),
    "targets in capitals": ([f"{word}\t{word.upper()}\tshout{word}\n" for word in WORDS], False),
    "targets that are tags": ([f"{word}\tV;{'PST' if word > 'word2' else 'PRS'}\teng\n" for word in WORDS], False),
}


@pytest.mark.parametrize("case", SECOND)
def test_a_second_column_that_looks_like_features_is_taken_for_them_and_that_is_told(read, case):
    lines, is_second = SECOND[case]
    content = "".join(lines)
    columns = "input,features,target" if is_second else "input,target,features"
    wanted = read(content, columns=columns)
    note = "1: the second column looks like features: columns input,features,target"
    streamed = [line for part in stream_inputs(BytesIO(content.encode()), "pairs.tsv") for line in part]
    assert wanted.notes == ()
    assert [line.pair for line in streamed] == wanted
    assert [line.note != "" for line in streamed] == [is_second] + [False] * (len(lines) - 1)
    assert read(content) == wanted
    assert (note in read(content).report()) == is_second


def test_what_three_columns_are_is_decided_once(monkeypatch):
    monkeypatch.setattr("grapheme_nn.data.stream.BLOCK", 20)
    content = b"walk\tV;PST\twalked\ntalk\tbare\tTALK\n"
    pairs = [line.pair for part in stream_inputs(BytesIO(content), "pairs.tsv") for line in part]
    assert pairs == [Pair("walk", "walked", ("V", "PST")), Pair("talk", "TALK", ("bare",))]


def test_targets_that_would_be_read_as_features_are_written_below_a_header(tmp_path):
    pairs = [Pair(word, "V;PST", (word,)) for word in WORDS]
    write_pairs(pairs, tmp_path / "pairs.tsv")
    assert read_pairs(tmp_path / "pairs.tsv") == pairs


def test_csv_is_read_by_its_own_rules(read):
    content = '\ufeffinput,target\r\n"a, ""b""\nc",d\r\ne,\r\n'
    assert read(content, "pairs.CSV") == [Pair('a, "b"\nc', "d"), Pair("e", "")]


def test_csv_may_have_semicolons(read):
    assert read("a;b\nc;d,e\n", "pairs.csv") == [Pair("a", "b"), Pair("c", "d,e")]


def test_tabs_and_json_in_a_file_named_csv_are_read_as_before(read):
    assert read('"a,b\tc\n', "pairs.csv") == [Pair('"a,b', "c")]
    assert read('{"input": "a", "target": "b"}\n', "pairs.csv") == [Pair("a", "b")]


def test_bad_rows_of_csv_are_named_with_their_first_line(read):
    content = 'a,b\n"c\nd",e,f,g\n"h"i,j\n\nk,l\n"m,n\n'
    with pytest.raises(DataError) as caught:
        read(content, "pairs.csv")
    found = [line.split("pairs.csv:")[1][:16] for line in str(caught.value).splitlines()[:-1]]
    assert found == ["2: has 4 columns", "4: invalid CSV: ", "5: the line is e", "7: invalid CSV: "]
    assert "with ',' between columns" in str(caught.value)
    assert read(content, "pairs.csv", skip_bad_lines=True) == [Pair("a", "b"), Pair("k", "l")]


def test_a_row_of_csv_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "pairs.csv").write_bytes(b'a,b\n"x\n\xe9",c\nd,e\n')
    with pytest.raises(DataError, match=r"pairs.csv:2: not UTF-8 \(byte 0xe9 at offset 7 of the file\)"):
        read_pairs(tmp_path / "pairs.csv")


@pytest.mark.parametrize("row", ["a,b", "a;b"])
def test_csv_by_another_name_is_told_what_to_do(read, row):
    with pytest.raises(DataError, match=r"if this is CSV, let the name of the file end in \.csv"):
        read(f"{row}\n")
