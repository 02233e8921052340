"""Numerals: integers to English words and to Roman numerals, and parsers of both."""

SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
    (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip


def to_words(number: int) -> str:
    """A number below a million in English words, without `and`: 12345 is `twelve thousand three hundred forty-five`."""
    if not 0 <= number < 1_000_000:
        raise ValueError(f"numbers from 0 to 999,999 have words here, but got {number}")
    if number < 20:
        return SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens] + (f"-{SMALL[ones]}" if ones else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    front, rest = divmod(number, size)
    return f"{to_words(front)} {name}" + (f" {to_words(rest)}" if rest else "")


def parse_words(text: str) -> int:
    """The number that English words mean: the inverse of `to_words`, by adding up."""
    value = {word: number for number, word in enumerate(SMALL)}
    value |= {word: 10 * number for number, word in enumerate(TENS) if number > 1}
    thousands = current = 0
    for word in text.replace("-", " ").split():
        if word == "thousand":
            thousands, current = 1000 * current, 0
        elif word == "hundred":
            current *= 100
        else:
            current += value[word]
    return thousands + current


def to_roman(number: int) -> str:
    """A number from 1 to 3,999 in Roman numerals: 1994 is `MCMXCIV`."""
    if not 1 <= number < 4000:
        raise ValueError(f"numbers from 1 to 3,999 have Roman numerals, but got {number}")
    text = ""
    for value, letters in ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return text


def parse_roman(text: str) -> int:
    """The number that Roman numerals mean: a letter before a larger one is subtracted, every other one added."""
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}[letter] for letter in text]
    following = [*values[1:], 0]
    return sum(value if value >= after else -value for value, after in zip(values, following, strict=True))
