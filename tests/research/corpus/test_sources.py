"""Where texts come from: every form, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import random
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from research.lambada import sources
from research.lambada.sources import download_archive, evaluation_texts, novel_texts, source_bytes, source_texts
from riffle import files
from riffle.lambada.passages import evaluation_splits, file_stem


def archive(path: Path, files: dict[str, bytes], mode: str = "w:xz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def official(path: Path) -> Path:
    """An archive laid out as LAMBADA's: novels in folders, in an archive of their own."""
    inner = archive(path.parent / "train-novels.tar", {"train-novels/author/a.txt": b"A novel.\n"}, "w").read_bytes()
    files = {
        "train-novels.tar": inner,
        "lambada_development_plain_text.txt": b"one two three one\n",
        "lambada_test_plain_text.txt": b"four five four\n\nsix six\n",
        "lambada-vocab-2.txt": b"the\n",
        "README": b"about",
    }
    return archive(path, files, "w:gz")


def test_every_form(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("Plain.", encoding="utf-8")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"Xz."))
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"Gz."))
    (tmp_path / "notes.tsv").write_text("no novel")
    archive(tmp_path / "d.tar.xz", {"x/d1.txt": b"D1.", "d2.txt.xz": lzma.compress(b"D2."), "d3.tsv": b""})
    found = {text.name: (text.read(), text.consumed) for text in source_texts(tmp_path)}
    assert {name: read for name, (read, _) in found.items()} == {
        "b.txt.xz": "Xz.",
        "c.txt.gz": "Gz.",
        "d.tar.xz/x/d1.txt": "D1.",
        "d.tar.xz/d2.txt.xz": "D2.",
        "sub/a.txt": "Plain.",
    }
    consumed = [at for _, at in found.values()]
    assert consumed == sorted(consumed)
    assert consumed[-1] == source_bytes(tmp_path)


def test_the_official_archive(tmp_path: Path) -> None:
    path = official(tmp_path / "lambada-dataset.tar.gz")
    assert [(file_stem(text.name), text.read()) for text in novel_texts(path)] == [("a", "A novel.\n")]
    assert evaluation_splits(evaluation_texts(path)) == {
        "development": [["one", "two", "three", "one"]],
        "test": [["four", "five", "four"], ["six", "six"]],
    }


def odd(name: str, **changed: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "odd.tar.xz"
        with tarfile.open(path, "w:xz") as tar:
            member = tarfile.TarInfo(name)
            for key, value in changed.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(b"x" * member.size))
        return path

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (odd("../a.txt"), "leaves the folder"),
        (odd("/etc/a.txt"), "leaves the folder"),
        (odd("x/../../a.txt"), "leaves the folder"),
        (odd("a.txt", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "link or a device"),
        (odd("a.txt", type=tarfile.LNKTYPE, linkname="b.txt"), "link or a device"),
        (odd("a.txt", type=tarfile.CHRTYPE), "link or a device"),
        (odd("a.txt", size=2000), "absurdly large"),
    ],
)
def test_archives_that_are_refused(
    write: Callable[[Path], Path], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match=rf"odd\.tar\.xz is refused: .*{message}"):
        list(source_texts(write(tmp_path)))


CLAIMED = 64 << 20


def long_name(tar: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, CLAIMED
    tar.addfile(member, io.BytesIO(b"a" * CLAIMED))


def negative_size(tar: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, -1024
    tar.fileobj.write(member.tobuf(tarfile.GNU_FORMAT) + b"a" * CLAIMED)


def sparse_map(tar: tarfile.TarFile) -> None:
    numbers = b"0\n" * (CLAIMED // 2)
    member = tarfile.TarInfo("a.txt")
    member.size = len(numbers)
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "0"}
    tar.addfile(member, io.BytesIO(b"%d\n" % (CLAIMED // 4) + numbers))


@pytest.mark.parametrize("write", [long_name, negative_size, sparse_map])
def test_headers_take_little_memory(write: Callable[[tarfile.TarFile], None], tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
        write(tar)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="a header of more than"):
            list(source_texts(path))
        assert tracemalloc.get_traced_memory()[1] < CLAIMED / 2
    finally:
        tracemalloc.stop()


def test_archives_in_archives_in_archives(tmp_path: Path) -> None:
    path = archive(tmp_path / "c.tar", {"a.txt": b"A."}, "w")
    for name in ("b.tar", "a.tar"):
        path = archive(tmp_path / name, {path.name: path.read_bytes()}, "w")
    with pytest.raises(ValueError, match="archive in an archive"):
        list(source_texts(path))


def test_a_small_file_that_grows_absurdly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"x" * 5000))
    with pytest.raises(ValueError, match="is larger than"):
        next(source_texts(tmp_path)).read()
    monkeypatch.setattr(sources, "ARCHIVE_LIMIT", 1500)
    with pytest.raises(ValueError, match="absurdly large"):
        list(source_texts(archive(tmp_path / "b.tar", {"1.txt": b"x" * 800, "2.txt": b"x" * 800}, "w")))


@pytest.mark.parametrize("kept", [20, 200, -30])
@pytest.mark.parametrize(("name", "mode"), [("a.tar.xz", "w:xz"), ("a.tar.gz", "w:gz")])
def test_an_archive_cut_short(kept: int, name: str, mode: str, tmp_path: Path) -> None:
    path = archive(
        tmp_path / name, {f"{i}.txt": random.Random(i).randbytes(300).hex().encode() for i in range(9)}, mode
    )
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="cut short or damaged"):
        [text.read() for text in source_texts(path)]


def test_paths_that_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        list(source_texts(tmp_path / "none.txt"))
    (tmp_path / "a.pdf").touch()
    with pytest.raises(ValueError, match="neither a folder nor"):
        list(source_texts(tmp_path / "a.pdf"))
    with pytest.raises(ValueError, match="none of LAMBADA's files"):
        list(evaluation_texts(tmp_path))


def test_nothing_is_downloaded_unchecked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not downloaded without its checksum.*--checksum md5:"):
        download_archive(tmp_path, None)
    with pytest.raises(ValueError, match="no checksum"):
        download_archive(tmp_path, "md5:123")


def test_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum = "sha256:" + hashlib.sha256(b"").hexdigest()
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"riffle-nn\[lambada\].*by hand"):
        download_archive(tmp_path, checksum)
    retrieve = Mock(return_value=str(tmp_path / "there"))
    monkeypatch.setitem(sys.modules, "pooch", SimpleNamespace(retrieve=retrieve))
    assert download_archive(tmp_path / "new", checksum) == tmp_path / "there"
    assert retrieve.call_args.kwargs["known_hash"] == checksum
    for retrieve.side_effect, message in ((OSError("no network"), "by hand"), (ValueError("hash"), "another checksum")):
        with pytest.raises(type(retrieve.side_effect), match=message):
            download_archive(tmp_path, checksum)
