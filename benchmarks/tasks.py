"""Twelve small tasks that people try first, each learned from 3,600 pairs by the defaults.

    python benchmarks/tasks.py                          # all of them, one after the other, one thread each
    python benchmarks/tasks.py --jobs 12 --seeds 3      # so many side by side, on a machine with as many cores
    python benchmarks/tasks.py --tasks reverse sort     # some of them

A task is a function that draws one pair. Of the pairs with different inputs, 3,600 go through `train` with its defaults
(it holds a tenth of them out by itself), and 500 others judge what came out: exact match, at least 98% after at most 90
seconds, and for texts of 300 characters at least 80% after at most four minutes. The exit code is 1 where a task fails.
"""

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

TRAIN, TEST = 3_600, 500
GIVEN = (
    "Anna", "Ben", "Carla", "David", "Elena", "Farid", "Grace", "Henrik", "Ines", "Jonas", "Keiko", "Liam", "Maria",
    "Noor", "Oskar", "Priya", "Quentin", "Rosa", "Stefan", "Tara", "Umberto", "Vera", "Wanda", "Yusuf", "Zoe",
)  # fmt: skip
FAMILY = (
    "Adler", "Brown", "Castillo", "Dubois", "Eriksen", "Fischer", "Garcia", "Haas", "Ivanov", "Jensen", "Kowalski",
    "Lopez", "Moreau", "Nakamura", "Okafor", "Petrov", "Quinn", "Rossi", "Schmidt", "Tanaka", "Ueda", "Varga", "Weber",
    "Young", "Zhang",
)  # fmt: skip
ABBREVIATED = {
    "Street": "St", "Avenue": "Ave", "Road": "Rd", "Boulevard": "Blvd", "Lane": "Ln", "Drive": "Dr", "Square": "Sq",
    "North": "N", "South": "S", "East": "E", "West": "W", "Apartment": "Apt", "Floor": "Fl", "Building": "Bldg",
}  # fmt: skip
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EDITS = {
    "teh": "the", "recieve": "receive", "colour": "color", "centre": "center", "adress": "address", "i": "I",
    "dont": "don't", "alot": "a lot", "seperate": "separate", "untill": "until", "wich": "which",
}  # fmt: skip


def word(random: Random, least: int, most: int, letters: str = ascii_lowercase) -> str:
    return "".join(random.choice(letters) for _ in range(random.randint(least, most)))


def phone(random: Random) -> tuple[str, str]:
    """A number written in one of six ways becomes E.164."""
    area, office, line = random.randint(200, 999), random.randint(200, 999), random.randint(0, 9999)
    way = random.choice(
        ("({}) {}-{:04}", "{}-{}-{:04}", "{}.{}.{:04}", "{} {} {:04}", "+1 {} {} {:04}", "1-{}-{}-{:04}")
    )
    return way.format(area, office, line), f"+1{area}{office}{line:04}"


def email(random: Random) -> tuple[str, str]:
    """An address becomes its domain."""
    name = random.choice((word(random, 3, 9), f"{word(random, 3, 7)}.{word(random, 3, 7)}", f"{word(random, 3, 7)}42"))
    host = word(random, 3, 9) if random.random() < 0.7 else f"{word(random, 3, 5)}.{word(random, 3, 7)}"
    domain = f"{host}.{random.choice(('com', 'org', 'net', 'de', 'io', 'co.uk'))}"
    return f"{name}@{domain}", domain


def address(random: Random) -> tuple[str, str]:
    """Words of an address are abbreviated."""
    kinds = list(ABBREVIATED)
    parts = [str(random.randint(1, 999))]
    if random.random() < 0.5:
        parts.append(random.choice(kinds[7:11]))
    parts += [random.choice(FAMILY), random.choice(kinds[:7])]
    if random.random() < 0.5:
        parts += [random.choice(kinds[11:]), str(random.randint(1, 99))]
    return " ".join(parts), " ".join(ABBREVIATED.get(part, part) for part in parts)


def reverse(random: Random) -> tuple[str, str]:
    """Letters from last to first."""
    text = word(random, 3, 10)
    return text, text[::-1]


def deduplicate(random: Random) -> tuple[str, str]:
    """Every letter once, where it comes first."""
    text = word(random, 4, 12, "abcdefgh")
    return text, "".join(dict.fromkeys(text))


def repeat(random: Random) -> tuple[str, str]:
    """The text twice."""
    text = word(random, 2, 8)
    return text, text * 2


def count(random: Random) -> tuple[str, str]:
    """How many vowels there are."""
    text = word(random, 3, 12)
    return text, str(sum(text.count(vowel) for vowel in "aeiou"))


def swap(random: Random) -> tuple[str, str]:
    """Two words change places."""
    first, second = word(random, 2, 7), word(random, 2, 7)
    return f"{first} {second}", f"{second} {first}"


def digits(random: Random) -> tuple[str, str]:
    """Every digit becomes a word."""
    text = word(random, 1, 8, "0123456789")
    return text, " ".join(DIGITS[int(digit)] for digit in text)


def names(random: Random) -> tuple[str, str]:
    """Given names and family name become the family name and initials."""
    given = random.sample(GIVEN, random.randint(1, 3))
    family = random.choice(FAMILY)
    return f"{' '.join(given)} {family}", f"{family}, {' '.join(f'{name[0]}.' for name in given)}"


def sort(random: Random) -> tuple[str, str]:
    """Letters in alphabetical order."""
    text = word(random, 3, 8)
    return text, "".join(sorted(text))


def edits(random: Random) -> tuple[str, str]:
    """Some 300 characters in which a few words are corrected."""
    given: list[str] = []
    wanted: list[str] = []
    while sum(map(len, given)) + len(given) < 290:
        if random.random() < 0.1:
            wrong, right = random.choice(list(EDITS.items()))
        else:
            wrong = right = word(random, 2, 8)
        given.append(wrong)
        wanted.append(right)
    return " ".join(given), " ".join(wanted)


class Task(NamedTuple):
    draw: Callable[[Random], tuple[str, str]]
    minutes: float = 1.5
    least: float = 0.98  # exact match


TASKS = {
    function.__name__: Task(function)
    for function in (phone, email, address, reverse, deduplicate, repeat, count, swap, digits, names, sort)
} | {"edits": Task(edits, 4.0, 0.8)}


class Result(NamedTuple):
    name: str
    seconds: float
    exact: float
    example: str


def run(name: str, seed: int) -> Result:
    """Train on a task and judge what comes out."""
    import torch

    from grapheme_nn import GraphTransformNet, TrainConfig, train
    from grapheme_nn.data import Pair, hold_out

    torch.set_num_threads(1)
    task, random = TASKS[name], Random(f"{name} {seed}")
    drawn: dict[str, str] = {}
    while len(drawn) < TRAIN + TEST:
        drawn.setdefault(*task.draw(random))
    pairs = [Pair(*pair) for pair in drawn.items()]
    test = pairs[TRAIN:]
    begun = perf_counter()
    with TemporaryDirectory() as folder:
        rest, dev = hold_out(pairs[:TRAIN], seed=seed)
        train(rest, dev, TrainConfig(seed=seed, time_limit=task.minutes), Path(folder))
        seconds = perf_counter() - begun
        made = GraphTransformNet.load(folder).transform([pair.input for pair in test])
    right = sum(output == pair.target for output, pair in zip(made, test, strict=True))
    return Result(name, seconds, right / len(test), f"{test[0].input:.30} -> {test[0].target:.30}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}  # one core, also beside a GPU
    failed = 0
    print(f"{'task':12} {'seed':>4} {'seconds':>8} {'exact':>8} {'at least':>8}  example", flush=True)
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        jobs = [(name, seed) for seed in range(chosen.seeds) for name in chosen.tasks]
        for (name, seed), result in zip(jobs, pool.map(run, *zip(*jobs, strict=True)), strict=True):
            least = TASKS[name].least
            failed += result.exact < least
            figures = f"{result.seconds:8.1f} {result.exact:8.2%} {least:8.0%}"
            print(f"{name:12} {seed:4} {figures}  {result.example}", flush=True)
    print(f"{failed} failed" if failed else "all as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
