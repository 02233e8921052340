"""Trainings side by side, each in a process of its own; if one fails or all shall stop, all save what they learned."""

import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from traceback import format_exc
from typing import Any

import torch

from grapheme_nn.checkpoint import FILE
from grapheme_nn.config import TrainConfig
from grapheme_nn.data import Pair
from grapheme_nn.registry import MORPHS, OBJECTIVES
from grapheme_nn.training import Progress, TrainResult, train


class MemberDied(RuntimeError):
    """A process that trained a member was ended from outside; the message says how, and the way out."""


class _Stop(Exception):
    """The process that started this one wants it to stop, or is gone."""


@dataclass(frozen=True)
class Job:
    """A training of several: its name, such as `member 2 of 5`, and what `train` is given."""

    name: str
    pairs: Sequence[Pair]
    dev: Sequence[Pair]
    config: TrainConfig
    folder: Path
    files: Mapping[str, str] | None = None

    def run(self, progress: Callable[[Progress], None]) -> TrainResult:
        """Train it, from where it was stopped if it was."""
        resume = (self.folder / FILE).exists()
        how: dict[str, Any] = {"resume": resume, "overwrite": not resume, "progress": progress, "files": self.files}
        return train(self.pairs, self.dev, self.config, self.folder, **how)

    @property
    def modules(self) -> list[str]:
        """Where the loss and the morphs were registered: a process that imports those knows them, too."""
        loss = [] if self.config.loss is None else [OBJECTIVES[self.config.loss]]
        entries = [*loss, *(MORPHS[name] for name in self.config.morphs)]
        return sorted({getattr(entry, "__module__", "__main__") for entry in entries} - {"__main__"})


def run_jobs(jobs: Sequence[Job], at_once: int, progress: Callable[[str, Progress], None]) -> None:
    """Run all jobs, each on one thread, so many at once; one at once is run in this process.

    `progress` is given the name of the job as well. If it raises something, or a job does, all jobs save their
    checkpoints and end, and it is raised here. A process that dies raises `MemberDied`.
    """
    if at_once > 1:
        _run_in_processes(deque(jobs), at_once, progress)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same model, whether it is trained here or in a process of its own
    try:
        for job in jobs:
            job.run(lambda now, name=job.name: progress(name, now))  # type: ignore[misc]
    finally:
        torch.set_num_threads(threads)


def _run_in_processes(waiting: deque[Job], at_once: int, progress: Callable[[str, Progress], None]) -> None:
    running: dict[Connection, tuple[Job, SpawnProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                _start(waiting.popleft(), running)
            for connection in wait([*running]):
                assert isinstance(connection, Connection)
                job, process = running[connection]
                message = _received(connection)
                if isinstance(message, Progress):
                    progress(job.name, message)
                    continue
                if isinstance(message, BaseException):
                    raise message
                process.join()
                connection.close()
                del running[connection]
                if message is None:
                    raise MemberDied(_died(job.name, process.exitcode or 0))
    finally:
        for connection in running:
            with suppress(OSError):  # one that has died needs not be told
                connection.send("stop")
        for connection, (_, process) in running.items():
            while _received(connection) is not None:
                pass
            process.join()
            connection.close()


def _start(job: Job, running: dict[Connection, tuple[Job, SpawnProcess]]) -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, job.modules, job))
    with _unheard():
        process.start()
    theirs.close()  # so that the end of the process is the end of what can be received
    running[ours] = job, process


def _run(connection: Connection, modules: Sequence[str], job: Job) -> None:
    """What a process does: it tells of its progress, and last that it has ended, or the exception that ended it."""
    torch.set_num_threads(1)

    def tell(now: Progress) -> None:
        try:
            if connection.poll():  # the only thing ever said is to stop; or nobody is there any more
                raise _Stop
            connection.send(now)
        except BrokenPipeError:
            raise _Stop from None

    answer: Exception | str = "ended"
    try:
        for module in modules:
            import_module(module)
        job.run(tell)
    except _Stop:
        return
    except Exception as error:
        error.add_note(format_exc())
        answer = error
    connection.send(answer)


def _received(connection: Connection) -> Any:
    """What a process says; None if it is gone."""
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return None


def _died(name: str, code: int) -> str:
    go_on = "continue what was stopped (--resume, resume=True)"
    if code < 0:
        return f"{name} was ended by {signal.Signals(-code).name}, perhaps for want of memory: make room, and {go_on}"
    guard = 'a script must be a file and begin its work below if __name__ == "__main__": (or give jobs=1)'
    return f"{name} ended with exit code {code}, for a reason that is said above: {guard}; then {go_on}"


@contextmanager
def _unheard() -> Iterator[None]:
    """What is started herein hears neither Ctrl-C, which all processes of a terminal get, nor SIGTERM: it is told."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would end the mask, were it started below it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
