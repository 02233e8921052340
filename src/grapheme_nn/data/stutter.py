"""Stuttered words: letters repeated by chance, `ppllaaiin`, become the word without repetitions, `plain`.

No two neighbours in a word are equal, so the word is what is left when every run of equal letters becomes one.
"""

from itertools import groupby
from random import Random
from string import ascii_lowercase

SHORTEST, LONGEST = 3, 10
TIMES = (1, 1, 2, 3)  # that a letter is written, each as likely: half of them once
MOST = 1_000_000  # far fewer than there are, so that distinct ones are found quickly


def draw_stutter(random: Random) -> tuple[str, str]:
    """A stuttered word and the word, letters drawn by chance; the text was read back by `collapse`."""
    word = random.choice(ascii_lowercase)
    for _ in range(random.randint(SHORTEST, LONGEST) - 1):
        word += random.choice(ascii_lowercase.replace(word[-1], ""))
    text = "".join(letter * random.choice(TIMES) for letter in word)
    if collapse(text) != word:
        raise AssertionError(f"{text!r} was written for {word!r}, but reads as {collapse(text)!r}")
    return text, word


def collapse(text: str) -> str:
    """The text with every run of equal letters written once."""
    return "".join(letter for letter, _ in groupby(text))
