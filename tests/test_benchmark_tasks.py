"""The twelve tasks of `benchmarks/tasks.py`: enough different pairs, and answers found in a second way."""

import importlib.util
import re
from pathlib import Path
from random import Random

import pytest

SPEC = importlib.util.spec_from_file_location("tasks", Path(__file__).parent.parent / "benchmarks" / "tasks.py")
tasks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tasks)

SPOKEN = {name: str(digit) for digit, name in enumerate(tasks.DIGITS)}


def first_time(text):
    return "".join(letter for at, letter in enumerate(text) if letter not in text[:at])


def family_first(text):
    *given, family = text.split()
    return ", ".join([family, " ".join(re.sub(r"[a-z]+", ".", name) for name in given)])


# What the answer must be, or what must be the question again.
ANSWER = {
    "phone": lambda text: "+1" + re.sub(r"\D", "", text)[-10:],
    "email": lambda text: re.search(r"@(.*)", text)[1],
    "reverse": lambda text: "".join(reversed(text)),
    "deduplicate": first_time,
    "repeat": lambda text: f"{text}{text}",
    "count": lambda text: str(len(re.findall(r"[aeiou]", text))),
    "swap": lambda text: re.sub(r"(\w+) (\w+)", r"\2 \1", text),
    "names": family_first,
    "sort": lambda text: "".join(letter * text.count(letter) for letter in tasks.ascii_lowercase),
}
QUESTION = {
    "digits": lambda text: "".join(SPOKEN[word] for word in text.split()),
    "address": lambda text: " ".join({v: k for k, v in tasks.ABBREVIATED.items()}.get(w, w) for w in text.split()),
    "edits": lambda text: " ".join({v: k for k, v in tasks.EDITS.items()}.get(w, w) for w in re.sub("a lot", "a_lot", text).split()).replace("a_lot", "alot"),
}  # fmt: skip


def test_there_are_twelve():
    assert len(tasks.TASKS) == 12
    assert tasks.TASKS.keys() == ANSWER.keys() | QUESTION.keys()


@pytest.mark.parametrize("name", list(tasks.TASKS))
def test_answers_are_right_and_pairs_different(name):
    random = Random(0)
    pairs = dict(tasks.TASKS[name].draw(random) for _ in range(8_000))
    assert len(pairs) >= tasks.TRAIN + tasks.TEST
    for question, answer in list(pairs.items())[:300]:
        if name in ANSWER:
            assert ANSWER[name](question) == answer
        else:
            assert QUESTION[name](answer) == question
