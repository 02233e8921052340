import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import DataError, Graph, Pair, read_inputs, read_pairs, write_pairs


@pytest.fixture
def written(tmp_path):
    """Writes bytes or text to a file and gives its path."""

    def write(content: bytes | str, name: str = "pairs") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def complaint(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_pairs(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("abc\tab\nxyz\txy\n", [Pair("abc", "ab"), Pair("xyz", "xy")]),
        ("walk\twalked\tV;PST\n", [Pair("walk", "walked", ("V", "PST"))]),
        ('{"input": "abc", "target": "ab"}\n', [Pair("abc", "ab")]),
        ('{"input": "a", "target": "b", "features": "N;NOM(PL)"}\n', [Pair("a", "b", ("N", "NOM", "NOM:PL"))]),
        ('{"input": "a", "target": "b", "features": ["N(;", "PL"]}\n', [Pair("a", "b", ("N(;", "PL"))]),
        ('{"input_polish": "+ 1 2", "expected_result": 3}\n', [Pair("+ 1 2", "3")]),
        ('{"input_polish": "/ 1 2", "expected_result": 0.5}\n', [Pair("/ 1 2", "0.5")]),
        ('{"input_polish": "q", "expected_result": null, "expected_symbolic": "x"}\n', [Pair("q", "x")]),
        ('{"question": "2 + 2?", "answer": "4", "level": 1}\n', [Pair("2 + 2?", "4")]),
    ],
)
def test_every_kind_of_file_is_told_by_its_content(written, content, pairs):
    assert read_pairs(written(content)) == pairs


def test_questions_and_arithmetic_may_be_mixed_in_one_file(written):
    lines = '{"input_polish": "+ 1 2", "expected_result": 3}\n{"input": "a", "target": "b"}\n{"question": "c", "answer": "d"}'
    assert read_pairs(written(lines)) == [Pair("+ 1 2", "3"), Pair("a", "b"), Pair("c", "d")]


def test_a_name_says_nothing_about_the_kind(written):
    assert read_pairs(written("a\tb\n", "pairs.jsonl")) == [Pair("a", "b")]


def test_a_tsv_value_may_look_like_json(written):
    assert read_pairs(written('{"input"}\t["b"]\n')) == [Pair('{"input"}', '["b"]')]


@pytest.mark.parametrize("columns", ["input,features,target", " input, features ,target"])
def test_columns_may_come_in_any_order(written, columns):
    pairs = read_pairs(written("walk\tV;PST\twalked\n"), columns=columns)
    assert pairs == [Pair("walk", "walked", ("V", "PST"))]


def test_a_column_can_be_left_out(written):
    assert read_pairs(written("walk\tV;PST\twalked\n"), columns="input,_,target") == [Pair("walk", "walked")]


@pytest.mark.parametrize(
    "columns", ["", "input", "input,input,target", "input,tarqet", "target,features", "input;target"]
)
def test_a_wrong_columns_option_is_met_by_one_sentence(written, columns):
    message = complaint(written("a\tb\n"), columns=columns)
    assert repr(columns) in message
    assert "input,features,target" in message
    assert "\n" not in message


def test_spaces_and_odd_characters_inside_values_are_kept(written):
    content = " a  b \t c\u2028\u0085\x0b\x0c\x1cd \n\u00a0\t\n"
    assert read_pairs(written(content)) == [Pair(" a  b ", " c\u2028\u0085\x0b\x0c\x1cd "), Pair("\u00a0", "")]


@pytest.mark.parametrize("content", ["\ufeffa\tb\r\nc\td\r\n", "a\tb\r\nc\td", "a\tb\nc\td\n\n\r\n"])
def test_byte_order_mark_crlf_and_a_missing_last_newline_change_nothing(written, content):
    assert read_pairs(written(content)) == [Pair("a", "b"), Pair("c", "d")]


def test_duplicated_lines_are_kept(written):
    assert read_pairs(written("a\tb\na\tb\n")) == [Pair("a", "b")] * 2


def test_an_empty_target_is_a_target_and_an_empty_input_an_error(written):
    assert read_pairs(written("a\t\n")) == [Pair("a", "")]
    assert "pairs:2: the input is empty" in complaint(written("a\tb\n\tb\n"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("abc", "has 1 column, but there should be 2 (input,target)"),
        ("a\tb\tc", "has 3 columns, but there should be 2"),
        ("", "the line is empty"),
        ('{"input": "a", "target": "b"}', "a line of JSON, but most lines of the file are TSV"),
    ],
)
def test_a_bad_line_of_tsv_is_named_with_its_number(written, line, reason):
    message = complaint(written(f"a\tb\n{line}\nc\td\n"))
    assert f"pairs:2: {reason}" in message or (f"pairs:2: this is {reason}" in message)
    assert message.endswith("1 bad line: correct or skip them")


def test_the_odd_line_is_reported_even_when_it_comes_first(written):
    assert "pairs:1: has 1 column" in complaint(written("header\na\tb\tc\nd\te\tf\n"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"input": "a", "target": }', "invalid JSON: Expecting value at character 26"),
        ("[1, 2]", "the JSON is a list, but should be an object"),
        ("12", "the JSON is a number, but should be an object"),
        ('{"input": "a"}', "there is no key 'target'; the keys are 'input'"),
        ("{}", "there is no key 'input'; the keys are none"),
        ('{"input": 3, "target": "b"}', "'input' must be a string or a graph, but is a number"),
        ('{"input": "a", "target": 3}', "'target' must be a string or a graph, but is a number"),
        ('{"input": "a", "target": null}', "'target' must be a string or a graph, but is null"),
        ('{"input": "", "target": "b"}', "the input is empty"),
        ('{"input": "a", "target": "b", "features": 3}', "'features' must be a string or a list of strings"),
        ('{"input": "a\\ud800", "target": "b"}', "half of a surrogate pair"),
        ('{"text": "a", "label": "b"}', "there is no key 'input'; the keys are 'text', 'label'"),
        ("a\tb", "this is a line of TSV, but most lines of the file are JSONL"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_a_bad_line_of_jsonl_is_named_with_its_number(written, line, reason):
    good = '{"input": "a", "target": "b"}\n'
    message = complaint(written(f"{good}{good}{line}\n{good}"))
    assert message.splitlines()[0].startswith(f"{written(good).parent / 'pairs'}:3: ")
    assert reason in message


@pytest.mark.parametrize(
    ("result", "reason"),
    [("true", "must be a string, but is true or false"), ("[1]", "a list"), ("NaN", "finite"), ("1e999", "finite")],
)
def test_a_result_of_a_curriculum_is_a_finite_number_or_a_string(written, result, reason):
    assert reason in complaint(written(f'{{"input_polish": "a", "expected_result": {result}}}\n'))


def test_a_curriculum_line_without_any_answer_says_which_keys_are_possible(written):
    message = complaint(written('{"input_polish": "a", "level": 1}\n'))
    assert "there is no key 'expected_result' or 'expected_symbolic'" in message


def test_a_wrong_encoding_is_reported_with_line_offset_and_way_out(written):
    message = complaint(written("a\tb\nné\tc\n".encode("latin-1")))
    assert "pairs:2: not UTF-8 (byte 0xe9 at offset 5 of the file)" in message
    assert "iconv" in message


def test_the_offset_counts_the_byte_order_mark(written):
    assert "offset 8 of" in complaint(written(b"\xef\xbb\xbfa\tb\nn\xe9\tc\n"))


def test_among_jsonl_a_line_of_json_with_tabs_that_is_not_valid_is_named_as_such(written):
    good = '{"input": "a",\t"target": "b"}\n'
    assert ":2: invalid JSON: Expecting ',' delimiter at character 29" in complaint(
        written(good + good[:-2] + "\n" + good)
    )


def test_a_number_that_json_has_not_is_no_harm_beside_a_pair(written):
    assert read_pairs(written('{"input": "a", "target": "b", "weight": NaN}\n')) == [Pair("a", "b")]


def test_all_bad_lines_are_reported_up_to_twenty_and_then_counted(written):
    content = "".join(f"{number}\n" if number % 2 else f"{number}\tx\n" for number in range(1, 61))
    lines = complaint(written(content)).splitlines()
    assert [int(line.split(":")[1]) for line in lines[:20]] == list(range(1, 40, 2))
    assert lines[20] == "... and 10 more: 30 lines in all"
    assert len(lines) == 22


def test_bad_lines_of_different_sorts_come_in_the_order_of_the_file(written):
    lines = complaint(written(b"a\tb\nbad\nn\xe9\tc\n\tx\nd\te\nf\tg\n")).splitlines()
    assert [int(line.split(":")[1]) for line in lines[:3]] == [2, 3, 4]


def test_skipping_bad_lines_returns_the_good_ones_and_says_what_was_left_out(written):
    pairs = read_pairs(written(b"a\tb\nbad\nn\xe9\tc\nd\te\n"), skip_bad_lines=True)
    assert pairs == [Pair("a", "b"), Pair("d", "e")]
    assert [problem.split(":")[1] for problem in pairs.skipped] == ["2", "3"]
    assert "pairs:2: has 1 column" in pairs.report()


def test_nothing_skipped_is_nothing_to_report(written):
    pairs = read_pairs(written("a\tb\n"), skip_bad_lines=True)
    assert pairs.skipped == ()
    assert pairs.report() == ""


def test_a_file_without_any_good_line_is_an_error_even_when_skipping(written):
    assert "has no good line" in complaint(written("a\nb\n"), skip_bad_lines=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n\r\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"PK\x03\x04\x00\x00", "looks like a binary file"),
        ("a\tb\n".encode("utf-16"), "looks like UTF-16"),
    ],
)
def test_what_is_not_a_text_is_met_by_one_sentence(written, content, reason):
    message = complaint(written(content), skip_bad_lines=True)
    assert reason in message
    assert "\n" not in message


def test_a_missing_file_is_met_by_one_sentence(tmp_path):
    assert complaint(tmp_path / "nothing.tsv") == f"{tmp_path / 'nothing.tsv'} does not exist: check the path"


def test_a_folder_is_read_as_one_file_by_file_in_the_order_of_names(written, tmp_path):
    written("c\td\n", "2.tsv")
    written('{"input": "a", "target": "b"}\n', "1.jsonl")
    written("input,target\ne,f\ng,h\n", "3.csv")
    for other in ("notes.txt", ".hidden.tsv"):
        written("anything", other)
    (tmp_path / "4.tsv").mkdir()
    pairs = read_pairs(tmp_path)
    assert pairs == [Pair("a", "b"), Pair("c", "d"), Pair("e", "f"), Pair("g", "h")]
    only = "for only files that end in .csv, .jsonl, .tsv are"
    assert pairs.notes == (f"{tmp_path}: not read: 4.tsv/, notes.txt, {only}",)
    for other in ("a.tsv.gz", "b.txt"):
        written("anything", other)
    assert read_pairs(tmp_path).notes == (f"{tmp_path}: not read: 4.tsv/, a.tsv.gz, b.txt and 1 more, {only}",)
    assert pairs.files == {str(tmp_path / name): count for name, count in (("1.jsonl", 1), ("2.tsv", 1), ("3.csv", 2))}


def test_bad_lines_of_a_folder_are_named_with_their_files(written, tmp_path):
    written("a\tb\nbad\n", "1.tsv")
    written('{"input": "a", "target": {"nodes": ["x"]}}\n', "2.jsonl")
    message = complaint(tmp_path)
    assert f"{tmp_path / '1.tsv'}:2: has 1 column" in message
    assert f"{tmp_path / '2.jsonl'}:1: 'target' is a graph, but in most lines it is a string" in message
    assert message.endswith(f"{tmp_path} has 2 bad lines: correct or skip them")


def test_a_folder_without_pairs_and_one_with_an_empty_file_are_refused(written, tmp_path):
    assert complaint(tmp_path) == f"{tmp_path} is a folder without files that end in .csv, .jsonl, .tsv: give pairs"
    written("a\tb\n", "1.tsv")
    written("", "2.tsv")
    assert complaint(tmp_path) == f"{tmp_path / '2.tsv'} is empty: give lines of TSV or JSONL"


def test_a_message_is_short_however_long_the_data(written):
    long = "x" * 10**6
    for line in (f'{{"{long}": 1}}', f'{{"input": "a", "target": "b", "features": 3, "{long}": 1}}', f"{long},b", long):
        assert len(complaint(written(f"{line}\n"))) < 500
    assert len(complaint(written("a\tb\n"), columns=long)) < 500


@pytest.mark.parametrize(
    "stream", [io.StringIO("ab\ncd\n"), io.BytesIO(b"ab\ncd\n"), io.TextIOWrapper(io.BytesIO(b"ab\ncd\n"))]
)
def test_inputs_come_from_text_and_byte_streams(stream):
    assert read_inputs(stream) == [Pair("ab", ""), Pair("cd", "")]


def test_inputs_are_the_first_column_of_any_tsv_and_of_plain_lines(written):
    path = written("walk\nwalk\twalked\nwalk\twalked\tV;PST\n")
    assert [pair.input for pair in read_inputs(path)] == ["walk"] * 3


def test_inputs_need_no_target_in_any_kind_of_file(written):
    assert read_inputs(written('{"input": "a"}\n')) == [Pair("a", "")]
    assert read_inputs(written('{"input_polish": "a"}\n')) == [Pair("a", "")]
    expected = [Pair("walk", "", ("V", "PST"))]
    assert read_inputs(written("walk\tV;PST\n"), columns="input,features,target") == expected
    assert read_inputs(written("walk\tV;PST\n"), columns="input,target,features") == expected
    assert read_inputs(written("V;PST\twalk\n"), columns="features,input") == expected


def test_inputs_without_the_features_that_columns_ask_for_are_an_error(written):
    with pytest.raises(DataError, match=r"has 1 column, but there should be 2 \(input,features\) or 3"):
        read_inputs(written("walk\n"), columns="input,features,target")


@pytest.mark.parametrize("line", ["{hello", "[1]", '{"a": 1} and more', '"', "{"])
def test_plain_lines_that_resemble_json_are_inputs(line):
    assert read_inputs(io.StringIO(line)) == [Pair(line, "")]


@pytest.mark.parametrize(
    ("line", "keys"), [("{}", "none"), ('{"text": "a"}', "'text'"), ('{"target": "b", "id":\t3}', "'target', 'id'")]
)
def test_an_object_without_an_input_is_no_plain_text(line, keys):
    with pytest.raises(DataError, match=f"input:2: there is no key 'input'; the keys are {keys}"):
        read_inputs(io.StringIO(f"plain text\n{line}\nmore text\n"))


def test_an_empty_line_is_an_empty_input():
    assert [pair.input for pair in read_inputs(io.StringIO("\na\n\n\tb\n\n"))] == ["", "a", "", "", ""]


def test_a_bad_encoding_in_a_stream_is_named_by_line():
    with pytest.raises(DataError, match="input:2: not UTF-8"):
        read_inputs(io.BytesIO(b"a\n\xff\n"))


@given(st.binary())
def test_any_bytes_are_read_or_met_by_a_data_error(data):
    for read in (read_pairs, read_inputs):
        try:
            pairs = read(io.BytesIO(data), skip_bad_lines=True)
        except DataError:
            continue
        assert all(isinstance(pair, Pair) and (pair.input or read is read_inputs) for pair in pairs)


small_json = st.none() | st.booleans() | st.floats() | st.text()
nearly_edges = st.lists(st.lists(st.integers(-1, 3) | small_json, max_size=4), max_size=3)
nearly_graphs = st.fixed_dictionaries(
    {"nodes": st.lists(st.text(max_size=2), max_size=3) | small_json},
    optional={"edges": nearly_edges | small_json, "directed": small_json, "edge": st.none()},
)
json_values = small_json | st.lists(small_json, max_size=2) | nearly_graphs
names = ["input", "target", "features", "input_polish", "expected_result", "expected_symbolic", "nodes", "edges"]
keys = st.sampled_from(names)


@given(st.lists(st.dictionaries(keys, json_values) | json_values, min_size=1))
def test_any_json_is_read_or_met_by_a_data_error(values):
    data = "\n".join(json.dumps(value) for value in values).encode()
    for read in (read_pairs, read_inputs):
        try:
            pairs = read(io.BytesIO(data), skip_bad_lines=True)
        except DataError:
            continue
        assert len(pairs) + len(pairs.skipped) == len(values)


@pytest.mark.parametrize(
    ("line", "count", "says"),
    [
        ("a\t\n", 100, "100 of 300 targets are empty and taken as such: leave those lines out if they are unknown"),
        ("a\t\n", 3, ""),
        ("a\t\n", 300, ""),
        ("a\tb \n", 300, "all targets end with a space, which is kept"),
        (" a\tb\n", 300, "all inputs begin with a space, which is kept"),
        ("a \t b\n", 299, ""),
    ],
)
def test_what_may_not_be_meant_is_told(tmp_path, line, count, says):
    (tmp_path / "pairs.tsv").write_text(line * count + "a\tb\n" * (300 - count))
    pairs = read_pairs(tmp_path / "pairs.tsv")
    assert len(pairs) == 300
    assert pairs.skipped == ()
    assert says in pairs.report()
    assert bool(says) == bool(pairs.notes)


def test_targets_that_are_graphs_have_no_spaces_around_them(tmp_path):
    graph = Graph(("x",), ())
    write_pairs([Pair(" a", graph)] * 2, tmp_path / "pairs.jsonl")
    assert "all inputs begin with a space" in read_pairs(tmp_path / "pairs.jsonl").report()
