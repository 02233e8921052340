"""Date normalisation: a day written in one of many ways becomes ISO 8601, `March 5th, 2024` becomes `2024-03-05`.

The rules that make every way of writing have one meaning:

- Months and weekdays have English names, whole or three letters, in any case; where there is a name, the first number
  is the day and the other one the year, except that a number of four digits is the year wherever it stands.
- Of three numbers, the year comes first if it has four digits; otherwise dots mean day, month, year (`05.03.2024`), and
  slashes mean month, day, year (`3/5/2024`). Eight digits in a row are year, month, day.
- A year of two digits is 2000-2068 if it is below 69, otherwise 1969-1999, as in POSIX.

Days lie in the years 1900-2099.
"""

import re
from collections.abc import Callable
from datetime import date
from random import Random

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
FIRST_SHORT, LAST_SHORT = date(1969, 1, 1), date(2068, 12, 31)  # the days whose year two digits can tell
MOST = 1_000_000  # fewer than there are days times ways, so that distinct ones are found quickly


def _month(day: date) -> str:
    return MONTHS[day.month - 1]


def _weekday(day: date) -> str:
    return WEEKDAYS[day.weekday()]


def _ordinal(day: date) -> str:
    number = day.day
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


# Ways that name the year in full, and ways that give two digits of it.
WAYS: tuple[Callable[[date], str], ...] = (
    lambda d: f"{_month(d)} {_ordinal(d)}, {d.year}",
    lambda d: f"{_month(d)} {d.day}, {d.year}",
    lambda d: f"{_month(d)[:3]} {d.day}, {d.year}",
    lambda d: f"{_month(d)[:3]}. {d.day}, {d.year}",
    lambda d: f"{_month(d).lower()} {d.day} {d.year}",
    lambda d: f"{_month(d).upper()} {d.day}, {d.year}",
    lambda d: f"{d.day} {_month(d)} {d.year}",
    lambda d: f"{d.day:02} {_month(d)[:3]} {d.year}",
    lambda d: f"{d.day} {_month(d)[:3].lower()} {d.year}",
    lambda d: f"{_ordinal(d)} {_month(d)} {d.year}",
    lambda d: f"{_ordinal(d)} of {_month(d)} {d.year}",
    lambda d: f"the {_ordinal(d)} of {_month(d)}, {d.year}",
    lambda d: f"{_weekday(d)}, {d.day} {_month(d)} {d.year}",
    lambda d: f"{_weekday(d)}, {_month(d)} {_ordinal(d)}, {d.year}",
    lambda d: f"{_weekday(d)[:3]}, {_month(d)[:3]} {d.day}, {d.year}",
    lambda d: f"{_weekday(d)[:3]} {d.day} {_month(d)[:3]} {d.year}",
    lambda d: f"{d.day}-{_month(d)[:3]}-{d.year}",
    lambda d: f"{d.year} {_month(d)} {d.day}",
    lambda d: f"{d.year}/{d.month}/{d.day}",
    lambda d: f"{d.year}/{d.month:02}/{d.day:02}",
    lambda d: f"{d.year}{d.month:02}{d.day:02}",
    lambda d: f"{d.day:02}.{d.month:02}.{d.year}",
    lambda d: f"{d.day}.{d.month}.{d.year}",
    lambda d: f"{d.month}/{d.day}/{d.year}",
)
SHORT_WAYS: tuple[Callable[[date], str], ...] = (
    lambda d: f"{d.day} {_month(d)[:3].lower()} {d.year % 100:02}",
    lambda d: f"{d.day} {_month(d)} '{d.year % 100:02}",
    lambda d: f"{d.day:02}-{_month(d)[:3].upper()}-{d.year % 100:02}",
    lambda d: f"{_month(d)[:3]} {d.day}, '{d.year % 100:02}",
    lambda d: f"{d.day}.{d.month}.{d.year % 100:02}",
    lambda d: f"{d.month:02}/{d.day:02}/{d.year % 100:02}",
)


def draw_date(random: Random) -> tuple[str, str]:
    """A day in some way of writing, and in ISO 8601; the text was read back by `parse_date`."""
    way = random.choice(WAYS + SHORT_WAYS)
    first, last = (FIRST_SHORT, LAST_SHORT) if way in SHORT_WAYS else (FIRST, LAST)
    day = date.fromordinal(random.randint(first.toordinal(), last.toordinal()))
    text = way(day)
    if parse_date(text) != day:
        raise AssertionError(f"{text!r} was written for {day}, but reads as {parse_date(text)}")
    return text, day.isoformat()


def parse_date(text: str) -> date:
    """The day that a text means by the rules above; it knows the rules, not the ways of writing."""
    words = re.findall(r"[a-z]+", text.lower())
    numbers = re.findall(r"\d+", text)
    months = [number for number, name in enumerate(MONTHS, 1) if {name.lower(), name[:3].lower()} & set(words)]
    if len(numbers) == 1 and len(numbers[0]) == 8:
        numbers = [numbers[0][:4], numbers[0][4:6], numbers[0][6:]]
    if len(numbers) + len(months) != 3 or len(months) > 1:
        raise ValueError(f"{text!r} does not hold a day, a month and a year")
    if len(numbers[0]) == 4:
        year, *rest = numbers
    else:
        *rest, year = numbers
        if not months and "." in text:
            rest.reverse()
    month, day = months[0] if months else int(rest[0]), int(rest[-1])
    century = 0 if len(year) == 4 else 2000 if int(year) < 69 else 1900
    found = date(century + int(year), month, day)
    weekday = WEEKDAYS[found.weekday()].lower()
    for name in WEEKDAYS:
        if {name.lower(), name[:3].lower()} & set(words) and name.lower() != weekday:
            raise ValueError(f"{text!r} says {name}, but {found} is a {weekday.title()}")
    return found
