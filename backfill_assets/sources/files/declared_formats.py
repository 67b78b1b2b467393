"""Texts in a format that a column declares, written anew as the one form that is read without one.

What comes out is a text again, so that all that holds for other texts holds for these: a day that is not in the
calendar, a digit too many, an hour that clocks skip, are refused by the type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from backfill_assets.core.spec.column_formats import (
    MONTHS,
    ColumnFormat,
    EpochFormat,
    NumberFormat,
    PatternFormat,
)
from backfill_assets.sources.files.exact_values import SPACE, ExactValues

_MONTHS: Final = "".join(name[:3].lower() for name in MONTHS)
_IN_FRONT: Final = {"month": "-", "day": "-", "hour": "T", "minute": ":", "second": ":", "fraction": "."}


@dataclass(frozen=True, slots=True)
class DeclaredFormat:
    r"""What texts in a format stand for, whether they are written as texts or, in JSON, as numbers.

    White space around a value is not a part of it. A field of CSV without anything is NULL. Patterns without a zone are
    read in Europe/Berlin here.

    | type | format | value | texts |
    |---|---|---|---|
    | timestamp | epoch_seconds | 2024-07-01 10:00:00 | "1719828000", " 1719828000 ", "+1719828000", "1719828000.0" |
    | timestamp | epoch_seconds | 2024-07-01 10:00:00 | "1719828e3", "1.719828E9" |
    | timestamp | epoch_seconds | 2024-07-01 10:00:00.5 | "1719828000.5", "1.7198280005E9", "1719828000.5000000" |
    | timestamp | epoch_seconds | 2024-07-01 10:00:00.123456 | "1719828000.123456", "1719828000.1234560" |
    | timestamp | epoch_seconds | 1970-01-01 00:00:00 | "0", "-0", "0.0" |
    | timestamp | epoch_seconds | 1969-12-31 23:59:59.999999 | "-0.000001", "-1e-6" |
    | timestamp | epoch_seconds | 0001-01-01 00:00:00 | "-62135596800" |
    | timestamp | epoch_seconds | 9999-12-31 23:59:59.999999 | "253402300799.999999" |
    | timestamp | epoch_seconds | refused | "-62135596801", "253402300800", "1719828000000", "1719828000.1234567" |
    | timestamp | epoch_seconds | refused | "2024-07-01T10:00:00Z", "1,719,828,000", "1719828000s", "", "NaN", "true" |
    | timestamp | epoch_seconds | refused | "1e400", "99999999999999999999", "0x5", "-", "1719828000,5" |
    | timestamp | epoch_millis | 2024-07-01 10:00:00 | "1719828000000", "1.719828E12" |
    | timestamp | epoch_millis | 2024-07-01 10:00:00.123 | "1719828000123" |
    | timestamp | epoch_millis | 2024-07-01 10:00:00.123456 | "1719828000123.456" |
    | timestamp | epoch_millis | 1969-12-31 23:59:59.999 | "-1" |
    | timestamp | epoch_millis | 1970-01-20 21:43:48 | "1719828000" |
    | timestamp | epoch_millis | refused | "1719828000123.4567", "253402300800000", "9223372036854775807" |
    | timestamp | epoch_micros | 2024-07-01 10:00:00.000001 | "1719828000000001" |
    | timestamp | epoch_micros | 1969-12-31 23:59:59.999999 | "-1" |
    | timestamp | epoch_micros | refused | "1719828000000001.5", "253402300800000000" |
    | timestamp | epoch_nanos | 2024-07-01 10:00:00.000001 | "1719828000000001000" |
    | timestamp | epoch_nanos | 1969-12-31 23:59:59.999999 | "-1000" |
    | timestamp | epoch_nanos | 9999-12-31 23:59:59.999999 | "253402300799999999000" |
    | timestamp | epoch_nanos | refused | "1719828000000001001", "-1", "1000.5", "253402300800000000000" |
    | date | epoch_days | 2024-07-01 | "19905", " 19905" |
    | date | epoch_days | 1969-12-31 | "-1" |
    | date | epoch_days | 9999-12-31 | "2932896" |
    | date | epoch_days | 0001-01-01 | "-719162" |
    | date | epoch_days | refused | "2932897", "-719163", "19905.5", "1719828000", "2024-07-01" |
    | date | epoch_seconds | 2024-07-01 | "1719792000" |
    | date | epoch_seconds | refused | "1719792001", "1719784800", "1719792000.000001" |
    | date | epoch_millis | 2024-07-01 | "1719792000000" |
    | date | epoch_millis | 1969-12-31 | "-86400000" |
    | date | epoch_millis | refused | "1719792000001", "19905" |
    | timestamp | dd.MM.yyyy HH:mm | 2024-12-31 22:59:00 | "31.12.2024 23:59", " 31.12.2024 23:59 " |
    | timestamp | dd.MM.yyyy HH:mm | 2024-10-27 00:30:00 | "27.10.2024 02:30" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "31.03.2024 02:30", "31.02.2024 10:00", "30.02.2024 10:00" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "1.12.2024 10:00", "01.12.24 10:00", "01.13.2024 10:00" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "01.12.2024 24:00", "01.12.2024 10:60", "01.12.2024 10:00:00" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "01.12.2024", "01-12-2024 10:00" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "01.12.2024T10:00", "01.12.0000 10:00" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "2024-12-31T23:59:00Z", "01.12.2024 10:00Z", "01.12.2024  10:00" |
    | timestamp | dd.MM.yyyy HH:mm | refused | "\u0661\u0661.12.2024 10:00", "01x12x2024 10:00", "" |
    | timestamp | MM/dd/yyyy | 2024-12-30 23:00:00 | "12/31/2024" |
    | timestamp | MM/dd/yyyy | refused | "31/12/2024", "2/9/2024", "02/30/2024" |
    | timestamp | M/d/yyyy h:mm:ss a | 2024-12-31 22:59:58 | "12/31/2024 11:59:58 PM", "12/31/2024 11:59:58 pm" |
    | timestamp | M/d/yyyy h:mm:ss a | 2024-02-08 23:05:00 | "2/9/2024 12:05:00 AM", "02/09/2024 12:05:00 am" |
    | timestamp | M/d/yyyy h:mm:ss a | 2024-02-09 11:05:00 | "2/9/2024 12:05:00 PM" |
    | timestamp | M/d/yyyy h:mm:ss a | 2024-02-09 08:05:00 | "2/9/2024 9:05:00 AM", "2/9/2024 09:05:00 AM" |
    | timestamp | M/d/yyyy h:mm:ss a | refused | "2/9/2024 13:05:00 PM", "2/9/2024 0:05:00 AM", "2/9/2024 9:05:00" |
    | timestamp | M/d/yyyy h:mm:ss a | refused | "2/30/2024 9:05:00 AM", "2/9/2024 9:05:00AM", "002/9/2024 9:05:00 AM" |
    | timestamp | dd/MMM/yyyy:HH:mm:ss Z | 2000-10-10 20:55:36 | "10/Oct/2000:13:55:36 -0700" |
    | timestamp | dd/MMM/yyyy:HH:mm:ss Z | 2000-10-10 20:55:36 | "10/OCT/2000:13:55:36 -0700" |
    | timestamp | dd/MMM/yyyy:HH:mm:ss Z | refused | "10/Okt/2000:13:55:36 -0700", "10/Oct/2000:13:55:36 Z" |
    | timestamp | dd/MMM/yyyy:HH:mm:ss Z | refused | "31/Jun/2000:13:55:36 -0700", "10/Oct/2000:13:55:36 -2500" |
    | timestamp | yyyyMMdd'T'HHmmssSSSXXX | 2024-07-01 08:00:00.123 | "20240701T100000123+02:00" |
    | timestamp | yyyyMMdd'T'HHmmssSSSXXX | 2024-07-01 10:00:00.5 | "20240701T100000500Z" |
    | timestamp | yyyyMMdd'T'HHmmssSSSXXX | refused | "20240701T10000012Z", "20240701T100000123+0200" |
    | timestamp | yyyyMMddHHmmss | 2024-07-01 08:00:00 | "20240701100000" |
    | timestamp | yyyyMMddHHmmss | refused | "2024070110000", "20240701246060", "20240331023000" |
    | timestamp | yyyy-MM-dd HH:mm:ss.SSSSSSSSS | 2024-07-01 08:00:00.123456 | "2024-07-01 10:00:00.123456000" |
    | timestamp | yyyy-MM-dd HH:mm:ss.SSSSSSSSS | refused | "2024-07-01 10:00:00.123456789", "2024-07-01 10:00:00.123" |
    | timestamp | d MMMM yyyy HH:mm VV | 2024-05-03 14:00:00 | "3 May 2024 10:00 America/New_York" |
    | timestamp | d MMMM yyyy HH:mm VV | 2024-05-03 14:00:00 | "3 may 2024 14:00 UTC" |
    | timestamp | d MMMM yyyy HH:mm VV | 2024-09-30 10:00:00 | "30 September 2024 10:00 Z" |
    | timestamp | d MMMM yyyy HH:mm VV | refused | "3 May 2024 10:00 EST" |
    | timestamp | d MMMM yyyy HH:mm VV | refused | "30 Sep 2024 10:00 Z", "3 May 2024 10:00 Europe/Berln" |
    | timestamp | d MMMM yyyy HH:mm VV | refused | "31 March 2024 02:30 Europe/Berlin" |
    | date | dd.MM.yyyy | 2024-02-29 | "29.02.2024", " 29.02.2024" |
    | date | dd.MM.yyyy | refused | "29.02.2023", "2024-02-29", "29.2.2024", "29.02.2024 00:00", "29.02.24" |
    | date | yyyyMMdd | 2024-02-29 | "20240229" |
    | date | yyyyMMdd | refused | "20230229", "2024-02-29", "2024229", "00000229" |
    | date | dd-MMM-yyyy' 00:00:00' | 2024-12-31 | "31-DEC-2024 00:00:00" |
    | date | dd-MMM-yyyy' 00:00:00' | refused | "31-DEC-2024 00:00:01", "31-DEC-2024", "31-DEC-24 00:00:00" |
    | date | yyyy'y'M'm'd | 2024-02-09 | "2024y2m9", "2024y02m09" |
    | date | yyyy'y'M'm'd | refused | "2024y2m", "2024-2-9" |
    | decimal(18,2) | 1234,56 | 1234.56 | "1234,56", "+1234,56", "1234,560", " 1234,56" |
    | decimal(18,2) | 1234,56 | -5.00 | "-5" |
    | decimal(18,2) | 1234,56 | refused | "1234.56", "1.234,56", "1,234,567", "1234,567" |
    | decimal(18,2) | 1234,56 | refused | ",", "1e3", "", "12345678901234567" |
    | decimal(18,2) | 1,234.56 | 1234.56 | "1,234.56", "1234.56", "1,234.560" |
    | decimal(18,2) | 1,234.56 | 1234567.00 | "1,234,567", "1234567" |
    | decimal(18,2) | 1,234.56 | refused | "12,34.56", "1,2345", "1,234,56" |
    | decimal(18,2) | 1,234.56 | refused | "1234,567", ",234", "1,234.567", "1.234,56" |
    | decimal(18,2) | 1,234.56 | refused | "1,,234", "1,234,", "$1,234.56", "1,234.56-" |
    | decimal(18,2) | 1 234,56 | 1234.56 | "1 234,56", "1234,56" |
    | decimal(18,2) | 1 234,56 | refused | "1  234,56", "1\u00a0234,56", "12 34,56" |
    | decimal(38,2) | 1'234.56 | 1234567890123456789012345678.90 | "1'234'567'890'123'456'789'012'345'678.90" |
    | double | 1234,56 | 0.5 | "0,5" |
    | double | 1234,56 | refused | "0.5", "NaN", "Infinity", "1e5", "1,5e3" |
    | bigint | 1,234 | 1234567 | "1,234,567", "1234567" |
    | bigint | 1,234 | -1000 | "-1,000" |
    | bigint | 1,234 | refused | "1,00", "1,234.0", "1,234,567,890,123,456,789,012", "1.234" |

    Args:
        kind: Type of the column.
        written: What the column declares.
    """

    kind: str
    written: ColumnFormat

    def rewritten(self, text: Column) -> Column:
        """Return a text as it is read without a format; NULL if it does not have the format."""
        text, written = F.btrim(text, F.lit(SPACE)), self.written
        if isinstance(written, EpochFormat):
            return _of_epoch(text, self.kind, written)
        plain = _plain_number(text, written) if isinstance(written, NumberFormat) else _iso(text, self.kind, written)
        return F.when(text.rlike(rf"^(?:{written.regex})\z"), plain)


def _of_epoch(text: Column, kind: str, written: EpochFormat) -> Column:
    """Return a number of units as an instant, or as the day that begins with it in UTC."""
    exact = ExactValues()
    if written.name == "epoch_days":
        return F.date_from_unix_date(exact.value(text, "decimal(7,0)").cast("int")).cast("string")
    if written.name == "epoch_nanos":
        nanos = exact.value(text, "decimal(21,0)")
        micros = F.when(nanos % 1000 == 0, (nanos / 1000).cast("bigint"))
    else:
        micros = (exact.value(text, f"decimal(18,{written.scale})") * 10**written.scale).cast("bigint")
    instant = F.timestamp_micros(micros).cast("string")
    if kind == "date":
        return F.nullif(F.regexp_extract(instant, r"^([^ ]+) 00:00:00\z", 1), F.lit(""))
    return F.concat(instant, F.lit("Z"))


def _plain_number(text: Column, written: NumberFormat) -> Column:
    """Return a number without marks between thousands, and with a point."""
    plain = F.replace(text, F.lit(written.thousands), F.lit("")) if written.thousands else text
    return F.replace(plain, F.lit(written.point), F.lit(".")) if written.point else plain


def _iso(text: Column, kind: str, written: PatternFormat) -> Column:
    """Return a text that has a pattern as ISO 8601 has it."""
    found = {field: F.regexp_extract(text, rf"^(?:{written.regex})\z", i) for i, field in enumerate(written.fields, 1)}
    name, hour = found.pop("month's name", None), found.pop("hour of twelve", None)
    if name is not None:
        place = F.instr(F.lit(_MONTHS), F.lower(F.substring(name, 1, 3)))
        found["month"] = ((place + 2) / 3).cast("int").cast("string")
    if hour is not None:
        is_afternoon = F.lower(found.pop("half of the day")) == "pm"
        of_day = hour.try_cast("int") % 12 + F.when(is_afternoon, 12).otherwise(0)
        found["hour"] = of_day.cast("string")
    parts = [found["year"], *(F.concat(F.lit(mark), found[f]) for f, mark in _IN_FRONT.items() if f in found)]
    if kind == "timestamp" and "hour" not in found:
        parts.append(F.lit("T00:00"))
    elif kind == "timestamp" and "minute" not in found:
        parts.append(F.lit(":00"))
    return F.concat(*parts, *([F.lit(" "), found["zone"]] if written.has_zone else []))
