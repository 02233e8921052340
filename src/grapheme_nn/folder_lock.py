"""One training at a time in a folder: a lock that ends with the process that holds it, however that ends."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from grapheme_nn.model_folder import ModelError

FILE = ".lock"  # stays when the lock is gone: another process may be about to take it


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; a `ModelError` where another process holds it, an `OSError` where it cannot be written.

    Where it is missing it is made, and is gone again if nothing came to be in it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _held(folder):
            yield
    finally:
        if is_new and [file.name for file in folder.iterdir()] == [FILE]:
            (folder / FILE).unlink()
            folder.rmdir()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with (folder / FILE).open("ab") as file:
        try:
            _lock(file.fileno())
        except (BlockingIOError, PermissionError):
            way_out = "wait for its end, or name another folder (--out)"
            raise ModelError(f"another training is writing into {folder}: {way_out}") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            # This file system has no locks: a training without one is better than none.
        with TemporaryFile(dir=folder):  # or it cannot be written: better known now than after an hour
            pass
        yield


def refuse_locked(folder: Path) -> None:
    """A `ModelError` where another process holds the folder."""
    if (folder / FILE).exists() and os.access(folder / FILE, os.W_OK):
        with locked(folder):
            pass


if os.name == "nt":

    def _lock(file: int) -> None:
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]

else:

    def _lock(file: int) -> None:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
