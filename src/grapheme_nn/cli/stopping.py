"""Ctrl-C and SIGTERM stop a training between two steps, so that nothing of what was learned is lost."""

import signal
from types import FrameType
from typing import Any


class Stopped(Exception):
    """A signal has asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number  # as shells have it: 130 after Ctrl-C, 143 after SIGTERM


class Stopping:
    """Hears signals within `with Stopping() as stopping`; `stopping.check()` raises `Stopped` once there was one.

    The second one ends the process at once, as it would without this.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # a job in the background may ignore Ctrl-C
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        if self._asked:
            raise Stopped(self._asked)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._asked = number
        self.__exit__()
