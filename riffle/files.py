"""Files: written whole or not at all, read through checks; and the lock of a folder that one process owns."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
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
    """A temporary file to write to; it replaces ``path`` in one step if the block succeeds.

    After a failure or a power cut the old file is still whole, and after a failure the temporary one is gone. It lies
    beside ``path``, under a name without its suffix, so that nobody takes it for a finished file. A device, a pipe or a
    descriptor of this process (``/dev/stdout``) is not replaced but gets the content.
    """
    descriptor = _descriptor(path)
    with _naming(path):
        if descriptor is not None or _is_special(path):
            with tempfile.TemporaryDirectory() as folder:
                temporary = Path(folder, "content")
                yield temporary
                sys.stdout.flush()
                device = os.open(path, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
                with open(device, "wb") as file, temporary.open("rb") as content:
                    shutil.copyfileobj(content, file)
            return
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # as the umask says
            if target.is_file():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    with contextlib.suppress(PermissionError):  # Windows cannot open folders
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors name the path, since the user does not know that of a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _is_special(path: Path) -> bool:
    return path.exists() and not (path.is_file() or path.is_dir())


def _descriptor(path: Path) -> int | None:
    """The descriptor of this process that ``/dev/stdout`` or ``/dev/fd/63`` is; None for any other path.

    To open such a path would be to open the file behind it once more, and to empty it.
    """
    own = {os.path.realpath(folder) for folder in ("/dev/fd", "/proc/self/fd")}
    for _ in range(40):  # links to links
        folder, name = os.path.realpath(path.parent), path.name
        if folder in own and name.isdecimal():
            return int(name)
        if not path.is_symlink():
            break
        path = Path(folder, os.readlink(path))
    return None


def check_writable(path: Path) -> None:
    """Raise an ``OSError`` where :func:`replacing` would: before minutes of work, and not after them."""
    with _naming(path):
        if _descriptor(path) is None and not _is_special(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))).close()


def check_exported(folder: Path, names: Collection[str]) -> None:
    """Raise unless a folder is new or empty, or has nothing but files of these names, among them a card of ours."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    card = folder / "README.md"
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - {*names} or not card.is_file():
        raise FileExistsError(f"{folder} is no earlier export and would be overwritten: choose a new folder")
    if "riffle" not in read_text(card):
        raise FileExistsError(f"{card} is the card of another model and would be overwritten: choose a new folder")


@contextlib.contextmanager
def replacing_files(folder: Path) -> Iterator[Path]:
    """A temporary folder to write to; if the block succeeds, its files move to ``folder``, each in one step."""
    with _naming(folder), tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        yield Path(name)
        folder.mkdir(exist_ok=True)
        for path in Path(name).iterdir():
            path.chmod(stat.S_IMODE(folder.stat().st_mode) & 0o666)  # safetensors makes files for their owner alone
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
