"""What a check says: plain text of 100 columns, JSON, and pictures; and what the command makes of it."""

import json
import sys

import pytest

from grapheme_nn.check import plot, run, threshold
from grapheme_nn.check.table import Row, failures, render, to_json


def row(name, passed=True, **figures):
    note = "" if passed else f"{name} is wrong"
    return Row("gradients", "Merge", name, passed, {"worst error": 1e-9, "compared": 4, "zero": 1} | figures, note)


ROWS = [row("soft: x"), row("soft: theta", passed=False, **{"worst error": 2.0}), row("eval: x")]
CURVES = {"threshold": [0.8, 0.81, 0.79], "merges": [3.0, 2.0, 2.0], "loss": [4.0, 1e-05, 0.0]}


def test_every_row_has_a_line_with_its_verdict_in_words():
    lines = render(ROWS).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["Merge", "soft:", "x"],
        ["Merge", "soft:", "theta"],
        ["Merge", "eval:", "x"],
    ]
    assert [("FAIL" in line, " ok " in line) for line in lines[1:]] == [(False, True), (True, False), (False, True)]


def test_a_group_is_one_line_with_its_worst_error_and_its_sums_and_every_failing_row():
    lines = render(ROWS, grouped=True).splitlines()
    assert lines[1].split() == ["Merge", "(3)", "FAIL", "2", "12", "3"]
    assert lines[2].split()[:4] == ["Merge", "soft:", "theta", "FAIL"]
    assert len(lines) == 3


def test_long_names_and_figures_are_broken_at_100_columns_and_nothing_is_lost():
    text = render([row("x" * 200), row("y", passed=False, **{"worst error": "Z" * 300})])
    assert max(map(len, text.splitlines())) <= 100
    assert [text.count(part) for part in ("x", "Z", " ok ", "FAIL")] == [200, 300, 1, 1]
    wide = {"a figure of many words": 12, "another figure of many words": 3, "loss": "█" * 30}
    for passed in (True, False):
        lines = render([row("short", passed, **wide)]).splitlines()
        assert max(map(len, lines)) <= 100
        assert "".join(lines).count("█") == 30


def test_a_table_is_plain_whatever_the_terminal_and_the_names(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = render([row("[bold]x[/bold] :smile:")])
    assert "[bold]x[/bold] :smile:" in text
    assert "\x1b" not in text


def test_failing_rows_are_named_with_the_reason():
    assert failures(ROWS) == "FAIL gradients: Merge soft: theta: soft: theta is wrong"


def test_json_holds_every_row_and_no_number_that_json_has_not():
    found = json.loads(to_json([*ROWS, row("x", **{"worst error": float("nan")})], 1.26), parse_constant=pytest.fail)
    assert found["passed"] is False
    assert found["seconds"] == 1.3
    assert [each["name"] for each in found["rows"]] == ["soft: x", "soft: theta", "eval: x", "x"]
    assert found["rows"][3]["figures"]["worst error"] == "nan"


def test_a_sparkline_goes_from_the_lowest_to_the_highest():
    assert plot.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == plot.BLOCKS
    assert plot.sparkline([2.0] * 5) == "▁▁▁▁▁"
    assert plot.sparkline([0.0, float("nan"), 1.0]) == "▁██"
    assert len(plot.sparkline(range(1000))) == 20


def test_a_figure_shows_every_curve_over_its_epochs(tmp_path):
    plot.save(CURVES, tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text()
    assert all(f"<!-- {word} -->" in drawn for word in (*CURVES, "epoch"))
    plot.save({"loss": [1.0, float("nan"), 0.5]}, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def quick(monkeypatch):
    """The threshold's check in no time."""
    course = threshold.Trajectory([0.8, 0.9] + [0.85] * 98, [2] * 100, [1.0] + [0.1] * 99, 12)
    monkeypatch.setattr(threshold, "run", lambda: course)
    return course


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_plot_is_written_where_it_is_wished(grapheme, quick, tmp_path, ending, magic):
    file = tmp_path / f"course.{ending}"
    result = grapheme("check", "threshold", "--plot", file)
    assert result.exit_code == 0, result.output
    assert file.read_bytes().startswith(magic)


def test_without_matplotlib_one_sentence_says_how_to_get_it_before_any_work(grapheme, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(threshold, "run", lambda: pytest.fail("work was done"))
    result = grapheme("check", "threshold", "--plot", tmp_path / "x.png")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "--plot needs matplotlib, which is not here: pip install 'grapheme-nn[plot]'\n"


def test_without_matplotlib_everything_else_works(grapheme, quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = grapheme("check", "threshold")
    assert result.exit_code == 0
    assert "█" in result.stdout


def test_a_place_that_cannot_be_written_is_told_before_any_work(grapheme, monkeypatch, tmp_path):
    monkeypatch.setattr(threshold, "run", lambda: pytest.fail("work was done"))
    (tmp_path / "folder.png").mkdir()
    for file in (tmp_path / "folder.png", tmp_path / "no" / "y.png"):
        result = grapheme("check", "threshold", "--plot", file)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(f"--plot {file} cannot be written: is there such a folder")


def test_a_link_to_nowhere_is_no_reason_to_lose_the_link(grapheme, quick, tmp_path):
    link = tmp_path / "link.PNG"
    link.symlink_to(tmp_path / "later.png")
    assert grapheme("check", "threshold", "--plot", link).exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "later.png").read_bytes()[:4] == b"\x89PNG"


def test_json_is_one_object_on_stdout(grapheme, quick):
    result = grapheme("check", "threshold", "--json")
    assert json.loads(result.stdout)["passed"] is True
    assert len(json.loads(result.stdout)["rows"]) == 3


def test_what_failed_is_on_stderr_and_in_the_exit_code(grapheme, quick, monkeypatch):
    monkeypatch.setattr(threshold, "run", lambda: quick._replace(merges=[0] * 100))
    for words in ([], ["--json"]):
        result = grapheme("check", "threshold", *words)
        assert result.exit_code == 1
        assert result.stderr == "FAIL threshold: nodes merged away: nothing was ever merged\n"


def test_a_check_that_breaks_has_failed(grapheme, monkeypatch):
    def broken():
        raise RuntimeError("no network today")

    monkeypatch.setattr(threshold, "run", broken)
    result = grapheme("check", "threshold")
    assert result.exit_code == 1
    assert result.stderr == "FAIL threshold: the check itself: RuntimeError: no network today\n"
    assert run.run("threshold").rows[0].passed is False
