"""Built-in tasks: pairs whose answers are computed, then verified in a second way."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from grapheme_nn.data import arithmetic, dates, stutter
from grapheme_nn.data.numerals import parse_roman, parse_words, to_roman, to_words
from grapheme_nn.data.pairs import Pair
from grapheme_nn.data.polish import confirm

QUESTIONS = (
    Pair("What color is the sky on a sunny day?", "blue"),
    Pair("How many legs does a dog have?", "four"),
    Pair("What does a cow say?", "moo"),
    Pair("What comes after three?", "four"),
    Pair("Is an elephant big or small?", "big"),
    Pair("What do bees make?", "honey"),
    Pair("What color is a ripe banana?", "yellow"),
    Pair("Which animal hops and has long ears?", "a rabbit"),
    Pair("What falls from the clouds when it is wet outside?", "rain"),
    Pair("What do you say when someone gives you a gift?", "thank you"),
)


class Task(NamedTuple):
    """One level of a built-in task."""

    most: int  # different inputs
    draw: Callable[[Random, int], list[Pair]]  # so many pairs with different inputs, by chance


def generate(task: str, count: int, seed: int, level: int | None = None) -> list[Pair]:
    """`count` pairs of a task of `TASKS` with `count` different inputs; the same seed gives the same pairs.

    Only arithmetic has levels, 1 (the default) to 7. Every answer is computed twice, in ways that have little in
    common: dates, words, Roman numerals and stuttered words are read back by a parser, arithmetic is done again by
    sympy. A disagreement raises an `AssertionError`.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: choose one of {', '.join(TASKS)}")
    levels = TASKS[task]
    if level is not None and len(levels) == 1:
        raise ValueError(f"{task} has no levels, but level {level} was asked for")
    level = 1 if level is None else level
    if not 1 <= level <= len(levels):
        raise ValueError(f"{task} has levels 1 to {len(levels)}, but level {level} was asked for")
    most, draw = levels[level - 1]
    if not 1 <= count <= most:
        name = f"{task} level {level}" if len(levels) > 1 else task
        raise ValueError(f"{name} gives 1 to {most:,} different pairs, but {count:,} were asked for")
    return draw(Random(seed), count)


def _distinct(count: int, draw: Callable[[], tuple[str, str]]) -> list[Pair]:
    """Drawn until there are enough with different inputs."""
    found: dict[str, str] = {}
    while len(found) < count:
        question, answer = draw()
        found[question] = answer
    return [Pair(question, answer) for question, answer in found.items()]


def _numeral(number: int, write: Callable[[int], str], read: Callable[[str], int]) -> Pair:
    text = write(number)
    if read(text) != number:
        raise AssertionError(f"{text!r} was written for {number}, but reads as {read(text)}")
    return Pair(str(number), text)


def _arithmetic(level: int) -> Task:
    most = arithmetic.most(level)

    def draw(random: Random, count: int) -> list[Pair]:
        if level == 1:
            pairs = [Pair(*arithmetic.small_question(number)) for number in random.sample(range(most), count)]
        else:
            pairs = _distinct(count, lambda: arithmetic.draw_question(random, level))
        for pair in pairs:
            confirm(pair.input, pair.target)
        return pairs

    return Task(most, draw)


def _numbers(random: Random, count: int) -> list[Pair]:
    return [_numeral(number, to_words, parse_words) for number in random.sample(range(100_000), count)]


def _roman(random: Random, count: int) -> list[Pair]:
    return [_numeral(number, to_roman, parse_roman) for number in random.sample(range(1, 4_000), count)]


# The place to add a task: its levels by its name, one where it has none.
TASKS: dict[str, tuple[Task, ...]] = {
    # a day of 1900-2099 in one of thirty ways of writing -> ISO 8601; `dates.py` states the rules
    "dates": (Task(dates.MOST, lambda random, count: _distinct(count, lambda: dates.draw_date(random))),),
    # 0 to 99,999 in digits -> English words
    "numbers": (Task(100_000, _numbers),),
    # 1 to 3,999 in digits -> Roman numerals
    "roman": (Task(3_999, _roman),),
    # a question in Polish notation -> its answer; see `arithmetic.py`
    "arithmetic": tuple(map(_arithmetic, arithmetic.LEVELS)),
    # a word of 3 to 10 letters, some of them repeated -> the word
    "stutter": (Task(stutter.MOST, lambda random, count: _distinct(count, lambda: stutter.draw_stutter(random))),),
    # ten questions that a child can answer
    "qa": (Task(len(QUESTIONS), lambda random, count: random.sample(QUESTIONS, count)),),
}
