"""Text files of novels and passages: plain, compressed, in folders and in archives; and LAMBADA's own archive.

Archives are read as streams and never unpacked to disk. Even so, a member whose path leaves the folder, a link or an
absurd size makes the archive refused, because it is then not the one that was published.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from riffle import files
from riffle.lambada.passages import EVALUATION_SPLITS, READ_ERRORS, damaged_file, decompressed, file_stem, read_text

ARCHIVE_LIMIT = 16 << 30
"""Most bytes of all files of one archive; LAMBADA's novels have about 1,200 million."""
HEADER_LIMIT = 64 << 10
"""Most bytes of what stands before one file of an archive: its name, long names and attributes."""
TEXTS = (".txt", ".txt.xz", ".txt.gz")
ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".tar")
COMPRESSED = (".xz", ".gz", ".tgz")
RECORD = "https://zenodo.org/records/2630551"
ARCHIVE_NAME = "lambada-dataset.tar.gz"
_URL = f"{RECORD}/files/{ARCHIVE_NAME}"
_BY_HAND = f"Download {ARCHIVE_NAME} from {RECORD} by hand and give it with --lambada"
_NOT_NOVELS = ("lambada-vocab", "lambada_", "readme")


@dataclass(frozen=True)
class SourceText:
    """A text to be read; one of an archive has to be read before the next is asked for."""

    name: str
    """Its path below the folder or archive."""
    read: Callable[[], str]
    """Returns the text; raises ``ValueError`` if it is damaged or not UTF-8."""
    consumed: int
    """Bytes on disk up to the end of this text, for a progress bar; the last one's are :func:`source_bytes`."""


def source_texts(path: Path) -> Iterator[SourceText]:
    """Every text of a file, an archive or a folder of both, in the order of their names."""
    consumed = 0
    for file, name in _files(path):
        if name.endswith(ARCHIVES):
            with file.open("rb") as raw:
                for text in _archive_texts(raw, name):
                    yield replace(text, consumed=consumed + raw.tell())
        else:
            yield SourceText(name, partial(read_text, partial(file.open, "rb"), name), consumed + file.stat().st_size)
        consumed += file.stat().st_size


def novel_texts(path: Path) -> Iterator[SourceText]:
    """The texts that are novels; LAMBADA's passages, word list and notes are skipped."""
    return (text for text in source_texts(path) if not file_stem(text.name).lower().startswith(_NOT_NOVELS))


def evaluation_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of passages to measure by: a file, or those of LAMBADA's files that a folder or archive holds."""
    whole = path.is_dir() or path.name.endswith(ARCHIVES)
    found = False
    for text in source_texts(path):
        if not whole or file_stem(text.name) in EVALUATION_SPLITS:
            found = True
            yield text.name, text.read()
    if not found:
        names = ", ".join(f"{name}.txt" for name in EVALUATION_SPLITS)
        raise ValueError(f"{path} holds none of LAMBADA's files {names}")


def source_bytes(path: Path) -> int:
    """Bytes on disk of everything :func:`source_texts` reads."""
    return sum(file.stat().st_size for file, _ in _files(path))


def token_bytes(path: Path) -> int:
    """Bytes that the tokens of a source take at least: 4 for each, of which English has one in 5 to 6 bytes of text."""
    return round(sum(file.stat().st_size * (2 if name.endswith(COMPRESSED) else 0.6) for file, name in _files(path)))


def download_archive(folder: Path, checksum: str | None) -> Path:
    """LAMBADA's archive in ``folder``, downloaded if it is not there; its checksum is verified in either case."""
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
        raise ImportError(f"downloading needs pooch: pip install 'riffle-nn[lambada]'. Or: {_BY_HAND}") from None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Path(pooch.retrieve(_URL, known_hash=checksum, fname=ARCHIVE_NAME, path=folder, progressbar=False))
    except ValueError as error:  # the checksum is wrong; pooch has removed the file
        raise ValueError(f"the downloaded archive has another checksum than {checksum}: {error}") from None
    except OSError as error:  # includes the errors of requests
        raise OSError(f"{_URL} cannot be downloaded ({error}). {_BY_HAND}") from None


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


class _Headers:
    """The stream of an archive: between two files, :data:`HEADER_LIMIT` bytes of headers are read at most.

    ``tarfile`` reads a long name or an attribute as a whole, and a small compressed archive can claim one of gigabytes.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.left = stream, HEADER_LIMIT
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self.left:  # a negative size would read all there is
            raise tarfile.ReadError(f"a header of more than {HEADER_LIMIT:,} bytes")
        self.left -= size
        return self.stream.read(size)


def _archive_texts(raw: IO[bytes], name: str, *, inside_another: bool = False) -> Iterator[SourceText]:
    total = 0
    try:
        stream = decompressed(raw, name)
        headers = _Headers(stream)
        with tarfile.open(fileobj=cast("IO[bytes]", headers), mode="r:") as tar:
            while member := tar.next():
                headers.left = ARCHIVE_LIMIT  # now its content may be read
                total += member.size + tarfile.BLOCKSIZE
                _check_member(member, name, total)
                path = PurePosixPath(member.name)
                inside = f"{name}/{path.as_posix()}"
                if member.isfile() and not path.name.startswith("."):
                    if inside.endswith(ARCHIVES) and inside_another:
                        raise ValueError(f"{name} is refused: it is an archive in an archive and has another, {inside}")
                    if inside.endswith(ARCHIVES):  # LAMBADA's novels are an archive in the archive
                        content = cast("IO[bytes]", tar.extractfile(member))
                        yield from _archive_texts(content, inside, inside_another=True)
                    elif inside.endswith(TEXTS):
                        yield SourceText(inside, partial(read_text, partial(tar.extractfile, member), inside), 0)
                # It remembers every member, and millions of empty ones take no space in a compressed archive.
                tar.members.clear()  # type: ignore[attr-defined]  # typeshed does not list it
                headers.left = HEADER_LIMIT
        stream.read(1 << 20)  # a truncated end of the compressed data shows only when it is read
    except (tarfile.TarError, *READ_ERRORS) as error:
        raise damaged_file(name, error) from None


def _check_member(member: tarfile.TarInfo, name: str, total: int) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        problem = f"its path {member.name!r} leaves the folder"
    elif not (member.isfile() or member.isdir()):
        problem = f"{member.name!r} is a link or a device"
    elif total > ARCHIVE_LIMIT or (member.size > files.MAX_BYTES and not member.name.endswith(ARCHIVES)):
        problem = f"{member.name!r} is absurdly large ({member.size:,} bytes)"
    else:
        return
    raise ValueError(f"{name} is refused: {problem}; get the archive again from where it was published")
