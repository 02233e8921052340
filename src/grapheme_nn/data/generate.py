"""The room of built-in tasks: pairs whose answers are computed, then found again in a second way."""

from collections.abc import Callable
from random import Random
from typing import Literal, get_args

from grapheme_nn.data import arithmetic, dates
from grapheme_nn.data.numerals import parse_roman, parse_words, to_roman, to_words
from grapheme_nn.data.pairs import Pair
from grapheme_nn.data.polish import confirm

Task = Literal["dates", "numbers", "roman", "arithmetic", "qa"]
TASKS: tuple[Task, ...] = get_args(Task)

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


def generate(task: str, count: int, seed: int, level: int | None = None) -> list[Pair]:
    """`count` pairs of a task with `count` different inputs; the same seed gives the same pairs.

        dates       a day of 1900-2099 in one of thirty ways of writing -> ISO 8601; `dates.py` states the rules
        numbers     0 to 99,999 in digits -> English words
        roman       1 to 3,999 in digits -> Roman numerals
        arithmetic  a question in Polish notation -> its answer, `level` 1 (the default) to 7; see `arithmetic.py`
        qa          ten questions that a child can answer

    Every answer is computed twice, in ways that have little in common: dates, words and Roman numerals are read back by
    a parser, arithmetic is done again by sympy. A disagreement raises an `AssertionError`.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: choose one of {', '.join(TASKS)}")
    if level is not None and task != "arithmetic":
        raise ValueError(f"only arithmetic has levels, but level {level} was asked of {task}")
    level = 1 if level is None else level
    if level not in arithmetic.LEVELS:
        raise ValueError(f"arithmetic has levels 1 to {arithmetic.LEVELS[-1]}, but level {level} was asked for")
    most = {"dates": dates.MOST, "numbers": 100_000, "roman": 3_999, "qa": len(QUESTIONS)}
    limit = most.get(task) or arithmetic.most(level)
    if not 1 <= count <= limit:
        name = f"{task} level {level}" if task == "arithmetic" else task
        raise ValueError(f"{name} gives 1 to {limit:,} different pairs, but {count:,} were asked for")
    random = Random(seed)
    if task == "dates":
        return _distinct(count, lambda: dates.draw_date(random))
    if task == "numbers":
        return [_numeral(number, to_words, parse_words) for number in random.sample(range(limit), count)]
    if task == "roman":
        return [_numeral(number, to_roman, parse_roman) for number in random.sample(range(1, limit + 1), count)]
    if task == "qa":
        return random.sample(QUESTIONS, count)
    if level == 1:
        pairs = [Pair(*arithmetic.small_question(number)) for number in random.sample(range(limit), count)]
    else:
        pairs = _distinct(count, lambda: arithmetic.draw_question(random, level))
    for pair in pairs:
        confirm(pair.input, pair.target)
    return pairs


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
