"""Built-in tasks: pairs whose answers are computed, then verified in a second way."""

from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from grapheme_nn.data import arithmetic, dates, derivative, infix, normalise, simplify, stutter
from grapheme_nn.data.expressions import permute
from grapheme_nn.data.graphs import Graph
from grapheme_nn.data.numerals import parse_roman, parse_words, to_roman, to_words
from grapheme_nn.data.pairs import Pair
from grapheme_nn.data.polish import confirm

Side: TypeAlias = str | Graph  # of a pair

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
    """A built-in task, or one level or size of it."""

    most: int  # different inputs
    draw: Callable[[Random, int], list[Pair]]  # so many pairs with different inputs, by chance
    graphs: bool = False  # input, target or both are graphs


class Family(NamedTuple):
    """A built-in task that an option makes harder."""

    option: Literal["level", "depth", "length"]
    default: int
    values: range  # of the option
    task: Callable[[int], Task]  # for a value of the option


def generate(
    task: str,
    count: int,
    seed: int,
    level: int | None = None,
    *,
    depth: int | None = None,
    length: int | None = None,
    shuffle: bool = False,
) -> list[Pair]:
    """`count` pairs of a task of `TASKS` with `count` different inputs; the same seed gives the same pairs.

    Each task has at most one of the options: `level` of arithmetic, `depth` of expressions (edges on the longest path),
    `length` of texts (characters at most). `shuffle` brings the nodes of graphs into an order drawn by chance, and
    changes nothing else.

    Every answer is computed twice, in ways that have little in common: dates, words, Roman numerals and stuttered words
    are read back by a parser, arithmetic is done again by sympy, graphs are evaluated at points drawn by chance. A
    disagreement raises an `AssertionError`.
    """
    if seed < 0:
        raise ValueError(f"seed must be at least 0, but is {seed}: Python draws the same with {-seed}")
    found = find_task(task, level=level, depth=depth, length=length)
    if not 1 <= count <= found.most:
        family = TASKS[task]
        options = {"level": level, "depth": depth, "length": length}
        name = task
        if isinstance(family, Family):
            value = options[family.option]
            name += f" {family.option} {family.default if value is None else value}"
        raise ValueError(f"{name} gives 1 to {found.most:,} different pairs, but {count:,} were asked for")
    if shuffle and not found.graphs:
        raise ValueError(f"{task} has no graphs whose nodes could be shuffled")
    pairs = found.draw(Random(seed), count)
    if shuffle:
        order = Random(seed)
        pairs = [Pair(_shuffled(pair.input, order), _shuffled(pair.target, order)) for pair in pairs]
    return pairs


def find_task(task: str, **options: int | None) -> Task:
    """A task by its name and its option, if it has one; a `ValueError` where there is none such."""
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: choose one of {', '.join(TASKS)}")
    family = TASKS[task]
    for option, value in options.items():
        if value is not None and (isinstance(family, Task) or family.option != option):
            raise ValueError(f"{task} has no {option}s, but {option} {value} was asked for")
    if isinstance(family, Task):
        return family
    value = options.get(family.option)
    value = family.default if value is None else value
    if value not in family.values:
        first, last = family.values[0], family.values[-1]
        raise ValueError(f"{task} has {family.option}s {first} to {last}, but {family.option} {value} was asked for")
    return family.task(value)


def _distinct(count: int, draw: Callable[[], tuple[Side, Side]]) -> list[Pair]:
    """Drawn until there are enough with different inputs."""
    found: dict[Side, Side] = {}
    while len(found) < count:
        question, answer = draw()
        found[question] = answer
    return [Pair(question, answer) for question, answer in found.items()]


def _shuffled(side: Side, random: Random) -> Side:
    return permute(side, random) if isinstance(side, Graph) else side


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
            confirm(str(pair.input), str(pair.target))
        return pairs

    return Task(most, draw)


def _graphs(most: Callable[[int], int], draw: Callable[[Random, int], tuple[Side, Side]]) -> Callable[[int], Task]:
    """Tasks by their size, from the function that draws one pair of a size."""
    return lambda size: Task(
        most(size), lambda random, count: _distinct(count, lambda: draw(random, size)), graphs=True
    )


def _numbers(random: Random, count: int) -> list[Pair]:
    return [_numeral(number, to_words, parse_words) for number in random.sample(range(100_000), count)]


def _roman(random: Random, count: int) -> list[Pair]:
    return [_numeral(number, to_roman, parse_roman) for number in random.sample(range(1, 4_000), count)]


# The place to add a task, by its name.
TASKS: dict[str, Task | Family] = {
    # a day of 1900-2099 in one of thirty ways of writing -> ISO 8601; `dates.py` states the rules
    "dates": Task(dates.MOST, lambda random, count: _distinct(count, lambda: dates.draw_date(random))),
    # 0 to 99,999 in digits -> English words
    "numbers": Task(100_000, _numbers),
    # 1 to 3,999 in digits -> Roman numerals
    "roman": Task(3_999, _roman),
    # a question in Polish notation -> its answer; see `arithmetic.py`
    "arithmetic": Family("level", 1, arithmetic.LEVELS, _arithmetic),
    # a word of 3 to 10 letters, some of them repeated -> the word
    "stutter": Task(stutter.MOST, lambda random, count: _distinct(count, lambda: stutter.draw_stutter(random))),
    # ten questions that a child can answer
    "qa": Task(len(QUESTIONS), lambda random, count: random.sample(QUESTIONS, count)),
    # an expression in x, a DAG -> its derivative by local rules, a DAG; see `derivative.py`
    "derivative": Family("depth", 3, range(1, 9), _graphs(derivative.most, derivative.draw_derivative)),
    # an expression with neutral elements, zeros, double negations, a DAG -> without; see `simplify.py`
    "simplify": Family("depth", 3, range(1, 9), _graphs(simplify.most, simplify.draw_simplify)),
    # infix text -> its tree, nodes in the order of their characters; see `infix.py`
    "parse": Family("length", 20, range(5, 101), _graphs(infix.most, infix.draw_parse)),
    # a tree, operands first -> its infix text with the fewest brackets
    "unparse": Family("length", 20, range(5, 101), _graphs(infix.most, infix.draw_unparse)),
    # a condition in Python, its tree -> its normal form, chains and negations resolved; see `normalise.py`
    "normalise": Family("depth", 3, range(1, 9), _graphs(normalise.most, normalise.draw_normalise)),
}
