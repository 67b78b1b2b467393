"""Encodings of text files beside UTF-8: one byte for each character, of which the lower half is ASCII. Pure."""

from __future__ import annotations

import codecs
from typing import Final

from backfill_assets.core.spec.fields import unknown

_ISO: Final = [f"iso-8859-{n}" for n in range(1, 17) if n != 12]
KNOWN: Final = [*_ISO, *(f"windows-125{n}" for n in range(9)), "cp437", "cp850", "cp852", "cp858", "cp866", "koi8-r"]
"""Encodings with one byte for each character, by the names that most tools give them."""

NOTHING: Final = "\ufffd"


def encoding(name: str) -> str:
    """Return the name of an encoding as `KNOWN` has it.

    Raises:
        ValueError: It is unknown, or its lines cannot be found by their bytes.
    """
    try:
        found = codecs.lookup(name).name
    except LookupError:
        raise ValueError(unknown(name, ["latin1", *KNOWN], "encoding")) from None
    if found in ("utf-8", "ascii", "utf-8-sig"):
        raise ValueError(f"`{name}` is what is read without it; leave it out")
    same = next((known for known in KNOWN if codecs.lookup(known).name == found), None)
    if same is None:
        raise ValueError(
            f"`{name}` is not an encoding with one byte for each character, as `latin1` and `windows-1252` are; "
            "have the files written in UTF-8"
        )
    return same


def upper_half(name: str) -> str:
    """Return the characters of the bytes from 128 on; `NOTHING` where there is none.

    The 32 that ISO 8859 leaves to control characters count as none: a file that has them is of another encoding.
    """
    characters = "".join(bytes([byte]).decode(name, "replace") for byte in range(128, 256))
    return "".join(NOTHING if "\x80" <= character <= "\x9f" else character for character in characters)


def as_decoded(bytes_: bytes, name: str) -> str:
    """Return bytes as text; a byte from 128 on that stands for nothing as the character of that number."""
    letters = upper_half(name)
    return "".join(chr(b) if b < 128 or letters[b - 128] == NOTHING else letters[b - 128] for b in bytes_)
