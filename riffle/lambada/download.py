"""LAMBADA's official archive, fetched with pooch and checked before anything reads it."""

from __future__ import annotations

import re
from pathlib import Path

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
