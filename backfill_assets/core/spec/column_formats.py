"""How the texts of a column are written, where it is another way than the one that is read without a word. Pure.

A `format` is one of three: a number since 1970, a pattern of letters for days and instants, an example of a number.
Each has one meaning for every text, so that what it does not describe can be refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Final

from backfill_assets.core.spec.fields import in_words, unknown

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_EPOCHS: Final = {"epoch_seconds": 6, "epoch_millis": 3, "epoch_micros": 0, "epoch_nanos": 0, "epoch_days": 0}
"""Digits behind the point that a whole microsecond has in each."""

_YEAR_9999: Final = {
    "epoch_seconds": 253_402_300_800, "epoch_millis": 253_402_300_800 * 10**3, "epoch_micros": 253_402_300_800 * 10**6,
    "epoch_nanos": 253_402_300_800 * 10**9, "epoch_days": 2_932_897,
}  # fmt: skip

_LETTERS: Final = {
    "yyyy": ("year", "[0-9]{4}"),
    "MM": ("month", "[0-9]{2}"),
    "M": ("month", "[0-9]{1,2}"),
    "MMM": ("month's name", f"(?i:{'|'.join(name[:3] for name in MONTHS)})"),
    "MMMM": ("month's name", f"(?i:{'|'.join(MONTHS)})"),
    "dd": ("day", "[0-9]{2}"),
    "d": ("day", "[0-9]{1,2}"),
    "HH": ("hour", "[0-9]{2}"),
    "H": ("hour", "[0-9]{1,2}"),
    "hh": ("hour of twelve", "(?:0[1-9]|1[0-2])"),
    "h": ("hour of twelve", "(?:0?[1-9]|1[0-2])"),
    "a": ("half of the day", "(?i:[ap]m)"),
    "mm": ("minute", "[0-9]{2}"),
    "ss": ("second", "[0-9]{2}"),
    **{"S" * n: ("fraction", f"[0-9]{{{n}}}") for n in range(1, 10)},
    "X": ("zone", "(?:Z|[+-][0-9]{2})"),
    "XX": ("zone", "(?:Z|[+-][0-9]{4})"),
    "XXX": ("zone", "(?:Z|[+-][0-9]{2}:[0-9]{2})"),
    "Z": ("zone", "[+-][0-9]{4}"),
    "VV": ("zone", "(?:Z|UTC|GMT|[A-Za-z_]+/[A-Za-z0-9_/+-]+)"),
}
"""What the letters of a pattern stand for, as in Java, and what fits them."""

_SHOWN: Final = ["yyyy", "MM", "M", "MMM", "dd", "d", "HH", "H", "hh", "h", "a", "mm", "ss", "SSS", "XXX", "Z", "VV"]
_NOT_EXACT: Final = {
    "yy": "two digits do not say the century; have the export write four",
    "y": "write `yyyy`, which are four digits",
    "YYYY": "that is the year of a week; did you mean `yyyy`?",
    "YY": "two digits do not say the century; have the export write four",
    "DD": "that is the day of a year; did you mean `dd`?",
    "D": "that is the day of a year; did you mean `d`?",
    "uuuu": "did you mean `yyyy`?",
    "z": "an abbreviation may stand for several zones; `XXX` (+01:00), `Z` (+0100), `VV` (Europe/Berlin) do not",
}
_VARIABLE: Final = ("M", "d", "H", "h")
_ONE_AFTER_THE_OTHER: Final = ("year", "month", "day", "hour", "minute", "second", "fraction")
_LETTER_OF: Final = {
    "year": "yyyy", "month": "MM", "day": "dd", "hour": "HH", "minute": "mm", "second": "ss", "half of the day": "a",
}  # fmt: skip
_NUMBER = re.compile(r"1([., '\u2019_\u00a0\u202f]?)234(?:([.,])56)?")


@dataclass(frozen=True, slots=True)
class EpochFormat:
    """A number of units since the first of January 1970 in UTC.

    Args:
        scale: Digits behind the point that a whole microsecond has.
    """

    name: str
    scale: int

    def describes(self, text: str) -> bool:
        """Say whether a text is such a number."""
        try:
            number = Decimal(text.strip())
        except InvalidOperation:
            return False
        return number.is_finite() and abs(number) <= _YEAR_9999[self.name]


@dataclass(frozen=True, slots=True)
class PatternFormat:
    """A pattern of letters.

    Args:
        regex: Fits a whole text, with a group for each of the fields.
    """

    regex: str
    fields: tuple[str, ...]

    @property
    def has_zone(self) -> bool:
        """Whether a text says its own zone."""
        return "zone" in self.fields

    def describes(self, text: str) -> bool:
        """Say whether a text has the pattern's form; it may still be no day of the calendar."""
        return re.fullmatch(self.regex, text.strip()) is not None


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A number with a mark between thousands, or another one for the point.

    Args:
        thousands: Empty: there is no mark.
        point: Empty: there is nothing behind it.
    """

    thousands: str
    point: str

    @property
    def regex(self) -> str:
        """A pattern that fits a whole text: marks stand between all thousands, or nowhere."""
        mark, point = re.escape(self.thousands), re.escape(self.point)
        whole = rf"(?:[0-9]{{1,3}}(?:{mark}[0-9]{{3}})++|[0-9]++)" if mark else "[0-9]++"
        return rf"[+-]?{whole}(?:{point}[0-9]+)?" if point else rf"[+-]?{whole}"

    def describes(self, text: str) -> bool:
        """Say whether a text is a number in that form."""
        return re.fullmatch(self.regex, text.strip()) is not None


ColumnFormat = EpochFormat | PatternFormat | NumberFormat


@cache
def column_format(text: str, kind: str) -> ColumnFormat:
    """Return what a `format` means for a type.

    Raises:
        ValueError: It has no meaning, or none for that type; in words.
    """
    if not text.strip():
        raise ValueError("format: it is empty; leave it out")
    if kind in ("date", "timestamp"):
        return _epoch(text, kind) if _is_word(text) else _pattern(text, kind)
    if kind in ("tinyint", "smallint", "int", "bigint", "double", "float") or kind.startswith("decimal"):
        return _number(text, is_whole=kind.endswith("int"))
    raise ValueError(f"format: a `{kind}` is written in one way; it is for instants, days and numbers")


def _is_word(text: str) -> bool:
    """Say whether a text is meant as a name; a pattern may consist of letters alone too, as `yyyyMMdd` does."""
    return re.fullmatch(r"[A-Za-z_0-9]+", text) is not None and not re.search(r"[yY]{2}", text)


def _epoch(text: str, kind: str) -> EpochFormat:
    known = [name for name in _EPOCHS if name != "epoch_days" or kind == "date"]
    if text == "epoch_days" and kind != "date":
        raise ValueError("format: `epoch_days` is for a `date`; a `timestamp` has a time")
    if text not in known:
        said = unknown(text, known, "format")
        raise ValueError(f"format: {said}" + ("" if said.endswith("?") else ", or a pattern such as `dd.MM.yyyy`"))
    return EpochFormat(text, _EPOCHS[text])


def _pattern(text: str, kind: str) -> PatternFormat:
    """Read a pattern, and refuse what would leave a doubt."""
    if text != text.strip():
        raise ValueError(f"format: `{text}` begins or ends with white space, which is no part of a value")
    if "%" in text:
        raise ValueError(f"format: `{text}` is written in letters alone, for example `dd.MM.yyyy HH:mm`")
    pieces = [match[0] for match in re.finditer(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']|'", text)]
    regex: list[str] = []
    fields: list[str] = []
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
        if not piece[0].isalpha() or not piece.isascii():
            regex.append(re.escape(_literal(text, piece)))
            continue
        if piece not in _LETTERS:
            raise ValueError(f"format: `{piece}` in `{text}`: {_not_known(piece)}")
        if piece in _VARIABLE and _begins_with_a_digit(following):
            raise ValueError(
                f"format: `{piece}` in `{text}` is one digit or two, and more digits follow; use `{piece * 2}`"
            )
        field, fitting = _LETTERS[piece]
        regex.append(f"({fitting})")
        fields.append(field)
    _refuse_gaps(text, fields, kind)
    return PatternFormat("".join(regex), tuple(fields))


def _literal(text: str, piece: str) -> str:
    """Return what stands in a text for itself."""
    if piece == "'":
        raise ValueError(f"format: a quote in `{text}` is not closed; two of them stand for one")
    if piece == "''":
        return "'"
    return piece[1:-1].replace("''", "'") if piece[0] == "'" else piece


def _not_known(piece: str) -> str:
    if piece in _NOT_EXACT:
        return _NOT_EXACT[piece]
    return f"{unknown(piece, _SHOWN, 'field')}; letters that stand for themselves have quotes around them: `'T'`"


def _begins_with_a_digit(piece: str) -> bool:
    if piece in _LETTERS:
        return _LETTERS[piece][1].startswith(("[0-9]", "(?:0"))
    return piece.lstrip("'")[:1].isdigit()


def _refuse_gaps(text: str, fields: list[str], kind: str) -> None:
    """Refuse a pattern whose fields do not say one day, or one instant."""
    plain = [{"month's name": "month", "hour of twelve": "hour"}.get(field, field) for field in fields]
    if twice := sorted({field for field in plain if plain.count(field) > 1}):
        raise ValueError(f"format: `{text}` says the {twice[0]} twice")
    last = max((i for i, field in enumerate(_ONE_AFTER_THE_OTHER) if field in plain), default=0)
    for field in _ONE_AFTER_THE_OTHER[: max(last, 2) + 1]:
        if field not in plain:
            hint = " (`mm` are minutes)" if field == "month" and "minute" in plain else ""
            raise ValueError(f"format: `{text}` does not say the {field}, `{_LETTER_OF[field]}`{hint}")
    if ("hour of twelve" in fields) != ("half of the day" in fields):
        raise ValueError(f"format: `{text}`: `h` needs `a` (am or pm) beside it, and `a` needs `h`; `H` counts to 23")
    if kind == "date" and (more := [field for field in plain if field not in ("year", "month", "day")]):
        raise ValueError(
            f"format: `{text}` says the {more[0]}, which a `date` does not have; what is the same in every text has "
            "quotes around it: `yyyy-MM-dd' 00:00:00'`"
        )


def _number(text: str, *, is_whole: bool) -> NumberFormat:
    found = _NUMBER.fullmatch(text)
    examples = ["1.234", "1,234", "1 234"] if is_whole else ["1.234,56", "1,234.56", "1234,56", "1 234,56"]
    if found is None or bool(found[2]) == is_whole or found[1] == found[2]:
        raise ValueError(f"format: `{text}` is not the number {'1234' if is_whole else '1234.56'} as it is written: "
                         f"{in_words(examples)}")  # fmt: skip
    if not found[1] and found[2] in (None, "."):
        raise ValueError(f"format: `{text}` is how numbers are read without it; leave it out")
    return NumberFormat(found[1], found[2] or "")
