"""Where novels and passages come from: folders, compressed files and archives, read without unpacking them to disk.

Nothing an archive names is ever created, and what it names is still checked: a path that leaves the folder, a link or
an absurd size means that the archive is not what it should be.

LAMBADA's official archive, fetched with pooch and checked before anything reads it.
"""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

TEXT_LIMIT = 256 << 20
"""Bytes of one text, at most; the longest novels have about 20 million."""
ARCHIVE_LIMIT = 16 << 30
"""Bytes of all files of one archive, at most; LAMBADA's novels have about 1,200 million."""
TEXTS = (".txt", ".txt.xz", ".txt.gz")
ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".tar")
EVALUATION = {
    "lambada_development_plain_text": "development",
    "lambada_test_plain_text": "test",
    "lambada_control_test_data_plain_text": "control",
}
"""The files of passages in the official archive, without their suffix, and the splits they become."""
_DAMAGE = (tarfile.TarError, EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error)
_NO_NOVELS = ("lambada-vocab", "lambada_", "readme")


@dataclass(frozen=True)
class Text:
    """A text that can be read now; one of an archive only until the next is asked for."""

    name: str
    """Its path below what was given."""
    read: Callable[[], str]
    """Gives the text; raises ``ValueError`` if it is damaged or not UTF-8."""
    consumed: int
    """Bytes of its source on disk up to it, for a progress bar; together they make :func:`size`."""

    @property
    def stem(self) -> str:
        """The name of the file without folders and suffix."""
        return PurePosixPath(self.name).name.split(".", 1)[0]


def novels(path: Path) -> Iterator[Text]:
    """The novels of a folder or a file; LAMBADA's own passages, word list and notes are passed over."""
    for text in texts(path):
        if not text.stem.lower().startswith(_NO_NOVELS):
            yield text


def evaluation(path: Path) -> Iterator[Text]:
    """LAMBADA's own passages in a folder, an archive or a file."""
    return (text for text in texts(path) if text.stem in EVALUATION)


def size(path: Path) -> int:
    """Bytes on disk of everything :func:`texts` reads."""
    return sum(file.stat().st_size for file, _ in _files(path))


def texts(path: Path) -> Iterator[Text]:
    """Every text of a file, an archive or a folder of both, in the order of the names."""
    consumed = 0
    for file, name in _files(path):
        if name.endswith(ARCHIVES):
            with file.open("rb") as raw:
                for text in _archive(raw, name):
                    yield replace(text, consumed=consumed + raw.tell())
        else:
            yield Text(name, partial(_plain, file, name), consumed + file.stat().st_size)
        consumed += file.stat().st_size


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.name.endswith(TEXTS + ARCHIVES) and not file.name.startswith("."):
                yield file, file.relative_to(path).as_posix()
    elif not path.exists():
        raise ValueError(f"{path} does not exist")
    elif path.name.endswith(TEXTS + ARCHIVES):
        yield path, path.name
    else:
        known = ", ".join(TEXTS + ARCHIVES)
        raise ValueError(f"{path} is neither a folder nor a file with one of the endings {known}")


def _archive(raw: IO[bytes], name: str) -> Iterator[Text]:
    total = 0
    try:
        stream = _decompressed(raw, name)
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                total += member.size
                inside = f"{name}/{_checked(member, name, total)}"
                if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                    continue
                if inside.endswith(ARCHIVES):  # LAMBADA's novels are an archive in the archive
                    yield from _archive(cast("IO[bytes]", tar.extractfile(member)), inside)
                elif inside.endswith(TEXTS):
                    yield Text(inside, partial(_member, tar, member, inside), 0)
        stream.read(1 << 20)  # the end of the compressed data; that it is missing, only reading it tells
    except _DAMAGE as error:
        raise _damaged(name, error) from None


def _plain(path: Path, name: str) -> str:
    with path.open("rb") as raw:
        return _decode(raw, name)


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> str:
    return _decode(cast("IO[bytes]", tar.extractfile(member)), name)


def _checked(member: tarfile.TarInfo, name: str, total: int) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        problem = f"its path {member.name!r} leaves the folder"
    elif not (member.isfile() or member.isdir()):
        problem = f"{member.name!r} is a link or a device"
    elif total > ARCHIVE_LIMIT or (member.size > TEXT_LIMIT and not member.name.endswith(ARCHIVES)):
        problem = f"{member.name!r} is absurdly large ({member.size:,} bytes)"
    else:
        return path.as_posix()
    raise ValueError(f"{name} is refused: {problem}; get the archive again from where it was published")


def _decompressed(raw: IO[bytes], name: str) -> IO[bytes]:
    if name.endswith(".xz"):
        return cast("IO[bytes]", lzma.open(raw))
    if name.endswith((".gz", ".tgz")):
        return cast("IO[bytes]", gzip.open(raw))
    return raw


def _decode(raw: IO[bytes], name: str) -> str:
    try:
        content = _decompressed(raw, name).read(TEXT_LIMIT + 1)
    except _DAMAGE as error:
        raise _damaged(name, error) from None
    if len(content) > TEXT_LIMIT:
        raise ValueError(f"{name} is refused: a text of more than {TEXT_LIMIT:,} bytes is no novel")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not UTF-8 (byte {error.start:,}): convert it, for example with iconv -f latin1 -t utf-8"
        ) from None


def _damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is cut short or damaged ({error}); get it again")


RECORD = "https://zenodo.org/records/2630551"
URL = f"{RECORD}/files/lambada-dataset.tar.gz"
FILE = "lambada-dataset.tar.gz"
CHECKSUM: str | None = None
"""The archive's checksum as ``algorithm:digits``; absent until somebody has verified one, so a user must give it."""
BY_HAND = f"Download {FILE} from {RECORD} by hand and give it with --lambada"


def fetch(folder: Path, checksum: str | None = CHECKSUM) -> Path:
    """The archive in ``folder``, downloaded unless it is there; in any case its checksum is right.

    Args:
        folder: Where the archive is kept.
        checksum: ``md5:`` or ``sha256:`` and the digits, as the page of the record shows them. Nothing is downloaded
            without it.
    """
    if checksum is None:
        raise ValueError(
            f"the archive is not downloaded without its checksum: give the one that {RECORD} shows, "
            "as --checksum md5:DIGITS"
        )
    if not re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", checksum):
        raise ValueError(f"{checksum!r} is no checksum: write md5: and 32 digits or sha256: and 64, in lower case")
    try:
        import pooch
    except ImportError:
        raise ImportError(f"downloading needs pooch: pip install 'riffle-nn[lambada]'. Or: {BY_HAND}") from None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Path(pooch.retrieve(URL, known_hash=checksum, fname=FILE, path=folder, progressbar=False))
    except ValueError as error:  # the checksum is wrong; pooch has removed what it fetched
        raise ValueError(f"the downloaded archive has another checksum than {checksum}: {error}") from None
    except OSError as error:  # requests' errors are among them
        raise OSError(f"{URL} cannot be downloaded ({error}). {BY_HAND}") from None
