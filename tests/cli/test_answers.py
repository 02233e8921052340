"""`grapheme predict --json`: all that a line says comes back, and nothing that is the answer's or that JSON has not."""

import json
import resource

import pytest


def answers(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("separator", ["\t", ",", ";"])
def test_columns_below_a_header_are_kept_under_its_names(grapheme, model, tmp_path, separator):
    file = tmp_path / ("a.tsv" if separator == "\t" else "a.csv")
    rows = ["# id;word;ipa;gloss", "7;12;x;many", "8;13;;"]
    file.write_text("".join(f"{row.replace(';', separator)}\n" for row in rows))
    header, one, other = answers(grapheme("predict", model, file, "--json"))
    assert header == {"header": rows[0].replace(";", separator)}
    assert one | {"output": ""} == {"id": "7", "input": "12", "ipa": "x", "gloss": "many", "output": ""}
    assert other | {"output": ""} == {"id": "8", "input": "13", "ipa": "", "gloss": "", "output": ""}
    assert list(one) == ["id", "input", "ipa", "gloss", "output"]


def test_below_a_header_the_target_may_be_missing_and_no_name_hides_another(grapheme, model):
    found = answers(grapheme("predict", model, "--json", given="id\tword\tform\tinput\tid\n7\t12\tx\ty\n"))
    assert found[1] | {"output": ""} == {"id": "7", "input": "12", "input.4": "x", "id.5": "y", "output": ""}


@pytest.mark.parametrize("names", ["id,word,note", "input,note,id", "word,id"])
def test_of_inputs_a_header_needs_no_target(grapheme, model, tmp_path, names):
    row = {"id": "7", "word": "12", "input": "12", "note": "x"}
    file = tmp_path / "a.csv"
    file.write_text(f"{names}\n{','.join(row[name] for name in names.split(','))}\n")
    _, found = answers(grapheme("predict", model, file, "--json"))
    kept = {"input" if name == "word" else name: row[name] for name in names.split(",")}
    assert found == kept | {"output": found["output"]}


def test_a_csv_that_comes_without_its_name_is_told(grapheme, model):
    result = grapheme("predict", model, given="id,word,note\n7,12,x\n")
    assert "1: looks like the header of a CSV (id,word,note), but is read as a line of text" in result.stderr
    assert "looks like" not in grapheme("predict", model, given="one, two\n").stderr


def test_without_a_header_there_are_no_names_to_keep_columns_under(grapheme, model):
    (found,) = answers(grapheme("predict", model, "--json", given="12\tx\n"))
    assert list(found) == ["input", "output"]


def test_columns_that_are_named_keep_the_names_of_the_header(grapheme, model):
    words = ["--json", "--columns", "target,input,_"]
    _, found = answers(grapheme("predict", model, *words, given="form\tword\tid\nx\t12\t7\n"))
    assert found | {"output": ""} == {"form": "x", "input": "12", "id": "7", "output": ""}


def test_the_best_outputs_are_columns_and_candidates(grapheme, model):
    given = "12\n\n345\n"
    lines = [line.split("\t") for line in grapheme("predict", model, "--best", 3, given=given).stdout.splitlines()]
    rows = answers(grapheme("predict", model, "--best", 3, "--json", given=given))
    assert [len(line) for line in lines] == [8, 8, 8]
    assert lines[1] == [""] * 8
    for line, row in zip(lines[::2], rows[::2], strict=True):
        candidates = row["candidates"]
        assert (row["output"], row["score"]) == (candidates[0]["output"], candidates[0]["score"])
        pairs = [(line[1], line[2]), (line[4], line[5]), (line[6], line[7])]
        assert pairs[: len(candidates)] == [(one["output"], f"{one['score']:.4f}") for one in candidates]
        assert all(pair == ("", "") for pair in pairs[len(candidates) :])
        assert len({one["output"] for one in candidates}) == len(candidates) > 1
    assert rows[1]["candidates"] == []


def test_one_best_output_is_as_with_scores(grapheme, model):
    one, other = (grapheme("predict", model, *how, given="12\n345\n") for how in (["--best", 1], ["--scores"]))
    assert one.stdout == other.stdout


def test_candidates_of_a_line_are_replaced_only_where_there_are_others(grapheme, model):
    given = '{"input": "12", "candidates": "old"}\n'
    assert answers(grapheme("predict", model, "--json", given=given))[0]["candidates"] == "old"
    assert answers(grapheme("predict", model, "--json", "--best", 2, given=given))[0]["candidates"] != "old"


@pytest.mark.parametrize("options", [[], ["--scores"]])
def test_what_is_the_answers_own_is_not_taken_from_the_line_and_that_is_told_once(grapheme, model, options):
    row = {"input": "12", "id": 7, "error": "old", "output": "old", "score": "old", "unlike_training": "old"}
    given = f"{json.dumps(row)}\n" * 3 + '{"error": "old"}\n'
    result = grapheme("predict", model, "--json", "--skip-bad-lines", *options, given=given)
    *good, bad = answers(result)
    for found in good:
        assert list(found) == ["input", "id", "output", *(["score", "unlike_training"] if options else [])]
        assert "old" not in found.values()
    assert "there is no key 'input'" in bad["error"]
    assert result.stderr.count("answers have their own output, score, unlike_training, error, so what the lines") == 1
    assert "answers have their own" not in grapheme("predict", model, given=f"{json.dumps(row)}\n").stderr


def test_a_column_named_as_an_answer_is_replaced_and_that_is_told(grapheme, model):
    result = grapheme("predict", model, "--json", given="input\toutput\n12\told\n")
    assert answers(result)[1]["output"] != "old"
    assert "the standard input: answers have their own output, so what the lines say there is left out" in result.stderr


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "[-1e999]"])
def test_a_number_that_json_cannot_hold_makes_a_bad_line(grapheme, refused, model, number):
    line = f'{{"input": "12", "id": {number}}}'
    says = f"the standard input:1: the number {number.strip('[]')} is none that JSON can hold: write null, or a string"
    refused(grapheme("predict", model, "--json", given=f"{line}\n"), 1, says)
    bad, good = answers(grapheme("predict", model, "--json", "--skip-bad-lines", given=f'{line}\n{{"input": "1"}}\n'))
    assert bad == {"input": line, "error": says}
    assert good["input"] == "1"


@pytest.mark.parametrize("command", ["predict", "evaluate", "generate"])
def test_a_full_disk_is_told_with_the_name_of_the_file_and_leaves_nothing(process, model, numbers, tmp_path, command):
    out = tmp_path / "out.tsv"
    words = {
        "predict": ["predict", model, numbers, "-o", out],
        "evaluate": ["evaluate", model, numbers, "--wrong", out],
        "generate": ["generate", "dates", "-o", out],
    }[command]
    running = process(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)))
    shown, told = running.communicate(timeout=60)
    assert (running.returncode, shown) == (1, b"")
    assert told.decode().splitlines()[-1] == f"{out} cannot be written (File too large): make room"
    assert list(tmp_path.iterdir()) == []


def test_a_device_without_room_and_a_full_standard_output_are_named(process, grapheme, refused, model, tmp_path):
    (tmp_path / "full.tsv").symlink_to("/dev/full")
    says = "cannot be written (No space left on device): make room"
    refused(grapheme("predict", model, "-o", tmp_path / "full.tsv", given="12\n"), 1, f"full.tsv {says}")
    with open("/dev/full", "wb") as full:
        running = process("predict", model, stdout=full)
        assert running.communicate(b"12\n", timeout=60)[1].decode() == f"the standard output {says}\n"
    assert running.returncode == 1
