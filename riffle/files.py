"""Files: written whole or not at all, read through checks; and the lock of a folder that one process owns."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from riffle.quantities import format_bytes
from riffle.registry import NeedsResearch
from riffle.schema import decode

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
MAX_BYTES = 2**30
"""The largest text or JSON file that is read; beyond it is no file of this program."""


class DamagedFile(ValueError):
    """A file that does not hold what it should: the message says what, where, and what to do."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` to write to; it replaces ``path`` in one step if the block succeeds.

    After a failure or a power cut the old file is still whole, and after a failure the temporary one is gone. Its name
    has no suffix of ``path``, so that nobody takes it for a finished file. A device such as ``/dev/stdout`` is written
    to directly.
    """
    target, name = Path(os.path.realpath(path)), ""
    if target.exists() and not (target.is_file() or target.is_dir()):
        yield target
        return
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{path.name}.")
        os.close(handle)
        yield Path(name)
        with Path(name).open("rb+") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the user does not know the temporary name
        raise
    with contextlib.suppress(PermissionError):  # Windows cannot open folders
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def replacing_files(folder: Path) -> Iterator[Path]:
    """A temporary folder to write to; if the block succeeds, its files move to ``folder``, each in one step."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        yield Path(name)
        folder.mkdir(exist_ok=True)
        for path in Path(name).iterdir():
            os.replace(path, folder / path.name)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step, see :func:`replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def refuse_pipe(path: Path) -> None:
    """Raise if a path is a named pipe: reading it would wait for a writer that may never come."""
    if stat.S_ISFIFO(path.stat().st_mode):
        raise DamagedFile(f"{path} is a pipe: write its content to a file first")


def read_text(path: Path) -> str:
    """The text of a file in UTF-8; a pipe, a huge file or other bytes are a :class:`DamagedFile`."""
    refuse_pipe(path)
    with path.open("rb") as file:
        return read_stream(file, str(path))


def read_stream(file: IO[bytes], name: str) -> str:
    """The text of an open file, see :func:`read_text`."""
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DamagedFile(f"{name} is larger than the {format_bytes(MAX_BYTES)} that are read of a text")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        where = f"{error.reason} at byte {error.start:,}"
        raise DamagedFile(f"{name} is no text in UTF-8: {where}; convert it, as by iconv -f latin1 -t utf-8") from None


def parse_json(text: str) -> Any:
    """The value of a JSON text; deep nesting is a ``ValueError`` like every other mistake."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, kind: Any = Any, *, what: str = "JSON file", remedy: str = "restore or remove it") -> Any:
    """The value in a JSON file, None if the file does not exist.

    Args:
        path: The file.
        kind: A type hint of what it holds, see :func:`riffle.schema.decode`.
        what: What the file should be, for the message of a :class:`DamagedFile`.
        remedy: What to do about a damaged one.
    """
    if not path.exists():
        return None
    return read_checked(path, lambda: decode(kind, parse_json(read_text(path))), what, remedy)


def read_checked(path: Path, read: Callable[[], Any], what: str, remedy: str) -> Any:
    """What ``read`` returns; its ``ValueError`` becomes a :class:`DamagedFile` that names the file and the remedy."""
    try:
        return read()
    except (DamagedFile, NeedsResearch):
        raise
    except ValueError as error:
        raise DamagedFile(f"{path} is no {what}: {error}; {remedy}") from None


class FolderInUse(OSError):
    """Another process owns a folder."""


class FolderLock:
    """Ownership of a folder by one process, from its creation to :meth:`release`, or until the object or process ends.

    The lock is advisory and the kernel's (``flock``): a process that died holds none, and readers are not hindered.
    Where the system or the file system has no such locks, nothing is guarded.

    Args:
        folder: The folder, which is made if need be.
        wait: Wait for the present owner to end instead of raising :class:`FolderInUse`.
    """

    def __init__(self, folder: Path, *, wait: bool = False) -> None:
        self.folder, self.path = folder, Path(folder) / LOCK_FILE
        self.process, self.handle = os.getpid(), -1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while fcntl is not None and not self._take(wait):
            pass

    def _take(self, wait: bool) -> bool:
        """Lock the file; False if the owner before removed it meanwhile."""
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            time.sleep(0.05)  # an owner writes its name just after it has taken the lock
            owner = os.read(self.handle, 200).decode(errors="replace") or "another process"
            self._close()
            raise FolderInUse(f"{self.folder} is in use by {owner}: wait for its end, or take another folder") from None
        except OSError:  # a file system without locks
            self.release()
            return True
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self.handle), self.path.stat()):
                with contextlib.suppress(OSError):  # a full disk
                    os.ftruncate(self.handle, 0)
                    os.write(self.handle, f"process {self.process} on {socket.gethostname()}".encode())
                return True
        self._close()
        return False

    def release(self) -> None:
        """Give the folder up."""
        if self.handle >= 0 and self.process == os.getpid():  # and not a fork of the owner
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._close()

    def _close(self) -> None:
        os.close(self.handle)
        self.handle = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    __del__ = release
