import re
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import grapheme_nn
from grapheme_nn.cli import app
from grapheme_nn.data import TASKS, Pair, Task, dates, generate, read_pairs, write_pairs
from grapheme_nn.data.dates import SHORT_WAYS, WAYS, draw_date, parse_date
from grapheme_nn.data.expressions import from_graph
from grapheme_nn.data.generate import find_task
from grapheme_nn.data.graphs import Graph
from grapheme_nn.data.numerals import parse_roman, parse_words, to_roman, to_words
from grapheme_nn.data.stutter import collapse

LEVELS = [("arithmetic", level) for level in range(1, 8)]
OTHERS = [(name, None) for name, task in TASKS.items() if isinstance(task, Task)]
GRAPHS = [name for name in TASKS if find_task(name).graphs]


@pytest.mark.parametrize(("task", "level"), OTHERS + LEVELS)
def test_inputs_differ_and_a_seed_decides_all(task, level):
    count = 10 if task == "qa" else 60
    pairs = generate(task, count, 3, level)
    assert len({pair.input for pair in pairs}) == len(pairs) == count
    assert pairs == generate(task, count, 3, level)
    assert pairs != generate(task, count, 4, level)
    assert all(pair.target for pair in pairs)


@pytest.mark.parametrize(("task", "level"), OTHERS + LEVELS)
def test_what_is_generated_can_be_written_and_read(tmp_path, task, level):
    pairs = generate(task, 10, 0, level)
    for name in ("pairs.tsv", "pairs.jsonl"):
        write_pairs(pairs, tmp_path / name)
        assert read_pairs(tmp_path / name) == pairs


def test_a_seed_below_0_which_would_be_another_once_more_is_refused():
    with pytest.raises(ValueError, match="seed must be at least 0, but is -7: Python draws the same with 7"):
        generate("dates", 5, -7)


@pytest.mark.parametrize("task", GRAPHS)
def test_graphs_differ_and_a_seed_decides_all(task):
    pairs = generate(task, 60, 3)
    assert len({pair.input for pair in pairs}) == len(pairs) == 60
    assert pairs == generate(task, 60, 3)
    assert pairs != generate(task, 60, 4)
    assert all(isinstance(pair.input, Graph) or isinstance(pair.target, Graph) for pair in pairs)


@pytest.mark.parametrize("task", GRAPHS)
def test_shuffling_changes_the_order_of_nodes_and_nothing_else(task):
    def both(side):
        return from_graph(side) if isinstance(side, Graph) else side

    pairs, shuffled = generate(task, 60, 3), generate(task, 60, 3, shuffle=True)
    assert shuffled == generate(task, 60, 3, shuffle=True)
    assert [tuple(map(both, pair[:2])) for pair in pairs] == [tuple(map(both, pair[:2])) for pair in shuffled]
    for place, (plain, mixed) in enumerate(zip(pairs, shuffled, strict=True)):
        for before, after in zip(plain[:2], mixed[:2], strict=True):
            if isinstance(before, Graph):
                assert sorted(before.nodes) == sorted(after.nodes), place
                assert [target for _, target, _ in after.edges] == sorted(target for _, target, _ in after.edges)
    assert sum(pair != other for pair, other in zip(pairs, shuffled, strict=True)) > 50


@pytest.mark.parametrize("task", GRAPHS)
def test_the_command_writes_graphs_and_shows_one(tmp_path, task):
    path = tmp_path / "pairs.jsonl"
    result = CliRunner().invoke(app, ["generate", task, "--count", "3", "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert re.search(r"\(\d+ nodes?\)", " ".join(result.output.split()))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("task", GRAPHS)
def test_graphs_are_not_written_as_tsv(tmp_path, task):
    result = CliRunner().invoke(app, ["generate", task, "-o", str(tmp_path / "pairs.tsv")])
    assert result.exit_code == 2
    assert "which a TSV cannot hold" in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())


def test_sizes_are_given_to_the_command(tmp_path):
    path = tmp_path / "pairs.jsonl"
    result = CliRunner().invoke(
        app, ["generate", "derivative", "--depth", "5", "--count", "2", "--shuffle", "-o", str(path)]
    )
    assert result.exit_code == 0, result.output
    (pair, _) = generate("derivative", 2, 0, depth=5, shuffle=True)
    assert f"({len(pair.input.nodes)} nodes)" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("dates", {"depth": 2}, "dates has no depths, but depth 2 was asked for"),
        ("arithmetic", {"length": 2}, "arithmetic has no lengths, but length 2 was asked for"),
        ("derivative", {"length": 20}, "derivative has no lengths, but length 20 was asked for"),
        ("derivative", {"level": 1}, "derivative has no levels, but level 1 was asked for"),
        ("derivative", {"depth": 9}, "derivative has depths 1 to 8, but depth 9 was asked for"),
        ("derivative", {"depth": 0}, "derivative has depths 1 to 8, but depth 0 was asked for"),
        ("roman", {"shuffle": True}, "roman has no graphs whose nodes could be shuffled"),
    ],
)
def test_options_that_do_not_fit_are_met_by_one_sentence(task, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        generate(task, 1, 0, **options)


def test_the_smallest_expressions_are_counted_exactly():
    assert len(generate("derivative", 60, 0, depth=1)) == 60
    with pytest.raises(ValueError, match="derivative depth 1 gives 1 to 60 different pairs, but 61 were asked for"):
        generate("derivative", 61, 0, depth=1)


def test_arithmetic_without_a_level_is_level_1():
    assert generate("arithmetic", 5, 0) == generate("arithmetic", 5, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("roman", 4000, 0), "roman gives 1 to 3,999 different pairs, but 4,000 were asked for"),
        (("numbers", 100_001, 0), "numbers gives 1 to 100,000 different pairs"),
        (("stutter", 1_000_001, 0), "stutter gives 1 to 1,000,000 different pairs"),
        (("qa", 11, 0), "qa gives 1 to 10 different pairs"),
        (("dates", 0, 0), "dates gives 1 to 1,000,000 different pairs, but 0 were asked for"),
        (("arithmetic", 30_001, 0), "arithmetic level 1 gives 1 to 30,000 different pairs"),
        (("arithmetic", 100_001, 0, 5), "arithmetic level 5 gives 1 to 100,000 different pairs"),
        (("arithmetic", 1, 0, 8), "arithmetic has levels 1 to 7, but level 8 was asked for"),
        (("dates", 1, 0, 1), "dates has no levels, but level 1 was asked for"),
        (("date", 1, 0), "unknown task 'date': choose one of dates, numbers, roman, arithmetic, stutter, qa"),
    ],
)
def test_what_cannot_be_given_is_met_by_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        generate(*arguments)


def test_a_task_is_added_in_one_place(monkeypatch, tmp_path):
    def draw(random, count):
        return [Pair(f"{number}!", str(number)) for number in random.sample(range(50), count)]

    monkeypatch.setitem(TASKS, "louder", Task(50, draw))
    assert len(set(generate("louder", 50, 0))) == 50
    with pytest.raises(ValueError, match="louder gives 1 to 50 different pairs, but 51 were"):
        generate("louder", 51, 0)
    with pytest.raises(ValueError, match="louder has no levels"):
        generate("louder", 1, 0, 2)
    result = CliRunner().invoke(app, ["generate", "louder", "--count", "9", "-o", str(tmp_path / "louder.tsv")])
    assert result.exit_code == 0, result.output
    assert read_pairs(tmp_path / "louder.tsv") == generate("louder", 9, 0)


def test_the_readme_names_every_task():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in readme.splitlines() if line.startswith("| `generate TASK`")]
    assert re.findall(r"`(\w+)`", line) == list(TASKS)


def test_few_dates_are_drawn_in_vain(monkeypatch):
    drawn = []
    monkeypatch.setattr(dates, "draw_date", lambda random: drawn.append(0) or draw_date(random))
    generate("dates", 10_000, 0)
    assert len(drawn) < 10_100


def test_the_whole_of_a_task_can_be_had():
    assert {int(pair.input) for pair in generate("roman", 3999, 0)} == set(range(1, 4000))
    assert {pair.input for pair in generate("qa", 10, 0)} == {pair.input for pair in generate("qa", 10, 1)}


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("March 5th, 2024", "2024-03-05"),
        ("5 mar 24", "2024-03-05"),
        ("the 5th of March, 2024", "2024-03-05"),
        ("2024/3/5", "2024-03-05"),
        ("Tuesday, 5 March 2024", "2024-03-05"),
        ("05.03.2024", "2024-03-05"),
        ("3/5/2024", "2024-03-05"),
        ("20240305", "2024-03-05"),
        ("2024 March 5", "2024-03-05"),
        ("1 jan 68", "2068-01-01"),
        ("1 jan 69", "1969-01-01"),
        ("11.12.13", "2013-12-11"),
        ("11/12/13", "2013-11-12"),
        ("29 Feb 2000", "2000-02-29"),
    ],
)
def test_dates_mean_what_the_rules_say(text, iso):
    assert parse_date(text) == date.fromisoformat(iso)


@pytest.mark.parametrize("text", ["Monday, 5 March 2024", "30 feb 2024", "March 2024", "5", "", "may mar 5 2024"])
def test_texts_that_are_no_date_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_date(text)


@pytest.mark.parametrize("way", WAYS + SHORT_WAYS)
def test_every_way_of_writing_reads_back_on_every_day_of_a_leap_year(way):
    for offset in range(366):
        day = date(2024, 1, 1) + timedelta(offset)
        assert parse_date(way(day)) == day


def test_ordinals_are_english():
    ordinals = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 31: "31st"}
    for day, ordinal in ordinals.items():
        assert WAYS[0](date(2024, 3, day)) == f"March {ordinal}, 2024"


def test_no_text_is_written_for_two_days():
    days = [date(2001, 1, 1) + timedelta(offset) for offset in range(0, 365 * 12, 3)]
    meaning: dict[str, date] = {}
    for way in WAYS + SHORT_WAYS:
        for day in days:
            assert meaning.setdefault(way(day), day) == day


def test_dates_agree_with_strptime_where_it_knows_the_format():
    pairs = dict(draw_date(Random(seed)) for seed in range(3000))
    formats = ["%d %B %Y", "%B %d, %Y", "%A, %d %B %Y", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d %b %y", "%m/%d/%y"]
    agreed = 0
    for text, iso in pairs.items():
        for form in formats:
            try:
                found = datetime.strptime(text, form).date()
            except ValueError:
                continue
            assert found.isoformat() == iso
            agreed += 1
    assert agreed > 500


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (100, "one hundred"),
        (909, "nine hundred nine"),
        (1000, "one thousand"),
        (12_345, "twelve thousand three hundred forty-five"),
        (99_999, "ninety-nine thousand nine hundred ninety-nine"),
    ],
)
def test_numbers_have_their_english_words(number, words):
    assert to_words(number) == words


@given(st.integers(0, 999_999))
def test_words_read_back_as_the_number(number):
    assert parse_words(to_words(number)) == number


@pytest.mark.parametrize(("number", "letters"), [(4, "IV"), (49, "XLIX"), (1994, "MCMXCIV"), (3999, "MMMCMXCIX")])
def test_numbers_have_their_roman_numerals(number, letters):
    assert to_roman(number) == letters


def test_roman_numerals_read_back_and_never_repeat_a_letter_four_times():
    for number in range(1, 4000):
        letters = to_roman(number)
        assert parse_roman(letters) == number
        assert not re.search(r"(.)\1\1\1|VV|LL|DD", letters)


@pytest.mark.parametrize(
    ("task", "module", "parser"),
    [
        ("dates", "dates", "parse_date"),
        ("numbers", "generate", "parse_words"),
        ("roman", "generate", "parse_roman"),
        ("stutter", "stutter", "collapse"),
    ],
)
def test_a_wrong_answer_does_not_get_out(monkeypatch, task, module, parser):
    # By its full name, because `grapheme_nn.data.generate` is the function.
    monkeypatch.setattr(sys.modules[f"grapheme_nn.data.{module}"], parser, lambda text: None)
    with pytest.raises(AssertionError, match="reads as"):
        generate(task, 1, 0)


@pytest.mark.parametrize(("text", "word"), [("ppllaaiin", "plain"), ("abab", "abab"), ("aaa", "a"), ("", "")])
def test_runs_of_equal_letters_collapse_to_one(text, word):
    assert collapse(text) == word


def test_stuttered_words_have_the_letters_that_are_promised():
    pairs = generate("stutter", 5000, 0)
    assert {len(pair.target) for pair in pairs} == set(range(3, 11))
    assert set("".join(pair.target for pair in pairs)) == set(ascii_lowercase)
    assert not any(re.search(r"(.)\1", pair.target) for pair in pairs)
    assert all(re.sub(r"(.)\1+", r"\1", pair.input) == pair.target for pair in pairs)
    runs = [len(run[0]) for pair in pairs for run in re.finditer(r"(.)\1*", pair.input)]
    assert set(runs) == {1, 2, 3}
    assert 0.48 < runs.count(1) / len(runs) < 0.52


def test_questions_and_answers_are_ten_short_pairs():
    pairs = generate("qa", 10, 0)
    assert all(pair.input.endswith("?") and len(pair.target) < len(pair.input) for pair in pairs)
    assert all(isinstance(pair, Pair) for pair in pairs)


def test_data_needs_neither_torch_nor_sympy_to_be_imported():
    # The package itself is a stand-in here, because it may import torch for other rooms.
    program = (
        "import sys, types\n"
        "package = types.ModuleType('grapheme_nn')\n"
        f"package.__path__ = {list(grapheme_nn.__path__)!r}\n"
        "sys.modules['grapheme_nn'] = package\n"
        "import grapheme_nn.data\n"
        "grapheme_nn.data.generate('dates', 1, 0)\n"
        "print({'torch', 'numpy', 'sympy', 'torch_geometric'} & set(sys.modules))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
