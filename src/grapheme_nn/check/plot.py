"""The room of pictures: a line of blocks, a plot for the terminal, and the same as a PNG."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

BLOCKS = "▁▂▃▄▅▆▇█"

_ROWS, _LABEL = 7, 12  # of a panel in the terminal, and columns left of it

# Letters of 3 x 5 dots, as rows of bits: those that the labels of `png` need.
_FONT = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717", "6": "74757", "7": "71222",
    "8": "75757", "9": "75717", ".": "00002", "-": "00700", " ": "00000", "a": "07157", "c": "07447", "d": "11757",
    "e": "75747", "g": "75717", "h": "44755", "i": "20222", "l": "22223", "m": "57755", "o": "07557", "p": "75744",
    "r": "07444", "s": "34216", "t": "27223", "x": "05225",
}  # fmt: skip


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """The course of some values in one line, the lowest as ▁ and the highest as █."""
    count = min(width, len(values))
    chosen = [values[at * (len(values) - 1) // max(count - 1, 1)] for at in range(count)]
    return "".join(BLOCKS[level] for level in _levels(chosen, len(BLOCKS)))


def text_plot(curves: Mapping[str, Sequence[float]], width: int = 80) -> str:
    """A panel for each curve, one above the other, over the epochs: at most 100 columns."""
    lines = []
    for name, values in curves.items():
        chosen = [values[at * (len(values) - 1) // (width - 1)] for at in range(width)]
        levels = _levels(chosen, _ROWS)
        for row in range(_ROWS - 1, -1, -1):
            label = {_ROWS - 1: f"{max(values):.4g}", _ROWS // 2: name, 0: f"{min(values):.4g}"}.get(row, "")
            dots = "".join("•" if level == row else " " for level in levels)
            lines.append(f"{label:>{_LABEL}} │{dots}".rstrip())
        lines.append(f"{'':{_LABEL}} └{'─' * width}")
    last = len(next(iter(curves.values())))
    return "\n".join([*lines, f"{'epoch':>{_LABEL}}  1{last:>{width - 1}}"])


def save(curves: Mapping[str, Sequence[float]], file: Path) -> None:
    """The plot as a file, by its ending."""
    if file.suffix.lower() == ".png":
        file.write_bytes(png(curves))
    else:
        file.write_text(text_plot(curves) + "\n", encoding="utf-8")


def png(curves: Mapping[str, Sequence[float]], *, width: int = 640, height: int = 160) -> bytes:
    """A picture with a panel of this size for each curve; names and ends of the axes are written beside them."""
    left, top, bottom = 130, 14, 26
    image = [bytearray(b"\xff" * (left + width + 20)) for _ in range(len(curves) * height + bottom)]
    for panel, (name, values) in enumerate(curves.items()):
        floor, ceiling = (panel + 1) * height - top, panel * height + top
        for row in range(ceiling, floor + 1):
            image[row][left - 4] = 128
        image[floor + 4][left - 4 : left + width] = bytes([128]) * (width + 4)
        heights = [floor - level for level in _levels(values, floor - ceiling + 1)]
        for x in range(width):
            at = x * (len(values) - 1) / (width - 1)
            step = min(int(at), len(values) - 2) if len(values) > 1 else 0
            ends = heights[step], heights[min(step + 1, len(values) - 1)]
            y = round(ends[0] + (at - step) * (ends[1] - ends[0]))
            reach = abs(ends[1] - ends[0]) * len(values) // width // 2 + 1
            for row in range(max(y - reach, ceiling), min(y + reach, floor) + 1):
                image[row][left + x] = 0
        for text, row in (
            (f"{max(values):.4g}", ceiling),
            (name, (ceiling + floor) // 2),
            (f"{min(values):.4g}", floor - 12),
        ):
            _write(image, text, row, left - 12 - 8 * len(text))
    last = str(len(next(iter(curves.values()))))
    row = len(image) - bottom + 4
    for text, column in (("epoch", 78), ("1", left), (last, left + width - 8 * len(last))):
        _write(image, text, row, column)
    return _encoded(image)


def _write(image: list[bytearray], text: str, row: int, column: int) -> None:
    """Letters of 6 x 10 pixels, black."""
    for place, letter in enumerate(text):
        for down, bits in enumerate(_FONT.get(letter, "")):
            for right in range(3):
                if int(bits) >> (2 - right) & 1:
                    x, y = column + 8 * place + 2 * right, row + 2 * down
                    for line in image[y : y + 2]:
                        line[x : x + 2] = b"\0\0"


def _encoded(image: list[bytearray]) -> bytes:
    """Rows of grey pixels as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(image[0]), len(image), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in image))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _levels(values: Sequence[float], count: int) -> list[int]:
    """The values as whole numbers from 0, the lowest, to count - 1, the highest, where also goes what is not finite."""
    low, span = _extent(values)
    return [round((value - low) / span * (count - 1)) if isfinite(value) else count - 1 for value in values]


def _extent(values: Sequence[float]) -> tuple[float, float]:
    """The lowest of the finite values, and how far the highest is above it; 1 where there is no difference."""
    finite = [value for value in values if isfinite(value)] or [0.0]
    return min(finite), (max(finite) - min(finite)) or 1.0
