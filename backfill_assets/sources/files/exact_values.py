"""How a text becomes a value: exactly, or not at all.

Spark's own conversion rounds a decimal, takes `0x1p3` for 8, and a time without a zone for UTC, all without a word. So
a text has to have one of a few forms before Spark converts it, and what comes out has to be what was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

SPACE: Final = " \t\r\n"
"""What may stand around a value."""

_WHOLE = r"^[+-]?[0-9]++\z"
_NUMBER = r"^[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?\z"
_SCIENTIFIC = r"^([+-]?)([0-9]*+)\.?([0-9]*+)[eE]([+-]?[0-9]{1,4})\z"
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?\z"
_DAY = r"(?!0000)[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_TIME = r"[T ][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*+)?)?"
_OFFSET = r" ?(?:Z|UTC|GMT|(?:UTC|GMT)?[+-][0-9]{1,2}(?::?[0-9]{2})?)"
_AS_USUAL = (
    r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})\z"
)
"""An instant that Spark reads as it stands: nearly all are written so, and one pattern costs less than six."""
_REGION = r"([A-Za-z_]+/[A-Za-z0-9_/+-]+)"


@dataclass(frozen=True, slots=True)
class ExactValues:
    r"""What texts stand for, in a JSON string, in a number or a word of JSON, in a field of CSV, of history and live.

    White space around a value is not a part of it, except in a `string`. What is refused is named with its file and
    line, or quarantined. Of `double` and `float` the nearest value counts. An hour that clocks show twice is the first
    of the two; one that they skip is refused. A field of CSV without anything is NULL: the column `CSV` says so.

    | type | zone | value | CSV | texts |
    |---|---|---|---|---|
    | bigint |  | 5 |  | "5", " 5 ", "\t5", "+5", "05" |
    | bigint |  | -5 |  | "-5" |
    | bigint |  | 0 |  | "-0" |
    | bigint |  | refused | NULL | "" |
    | bigint |  | refused |  | "5.", "5.0", "5e0", "5L", "0x5", "1,000", "1_000", "1 000", "\u0665", "\uff15" |
    | bigint |  | refused |  | "5\u00a0", "\u22125", "5\u0000", "5\u2028", "true", "null", "9223372036854775808" |
    | bigint |  | 9223372036854775807 |  | "9223372036854775807" |
    | bigint |  | -9223372036854775808 |  | "-9223372036854775808" |
    | tinyint |  | 127 |  | "127" |
    | tinyint |  | refused |  | "128" |
    | smallint |  | -32768 |  | "-32768" |
    | smallint |  | refused |  | "32768" |
    | int |  | 2147483647 |  | "2147483647" |
    | int |  | refused |  | "2147483648" |
    | decimal(18,2) |  | 1.50 |  | "1.5", "1.500", " 1.5 ", "+1.5", "001.50", "150e-2" |
    | decimal(18,2) |  | 1.50 |  | "1.5000000000000000000000000000000000000000000000000000" |
    | decimal(18,2) |  | 0.50 |  | ".5" |
    | decimal(18,2) |  | 5.00 |  | "5." |
    | decimal(18,2) |  | 0.00 |  | "-0.00", "0e400" |
    | decimal(18,2) |  | refused |  | "1.005", "1e-30", "1.005e0", "1e-10000", "1e16", "10000000000000000.00", "1,5" |
    | decimal(18,2) |  | refused |  | "1.000,50", "1.5f", "1.5.0", ".", "e5", "$1.50", "NaN" |
    | decimal(18,2) |  | 1500.00 |  | "1.5e3", "1.5E+3" |
    | decimal(18,2) |  | 10.05 |  | "1.005e1" |
    | decimal(18,2) |  | 12345678.00 |  | "1.2345678E7" |
    | decimal(18,2) |  | 9999999999999999.99 |  | "9999999999999999.99" |
    | decimal(38,2) |  | refused |  | "1.005", "1.0049", "1000000000000000000000000000000000000.00" |
    | decimal(38,2) |  | 1.00 |  | "1.00" |
    | decimal(38,2) |  | 999999999999999999999999999999999999.99 |  | "999999999999999999999999999999999999.99" |
    | decimal(38,10) |  | refused |  | "2.00000000004", "1e-30" |
    | decimal(38,10) |  | 2.0000000004 |  | "2.0000000004" |
    | decimal(38,37) |  | refused |  | "1.00000000000000000000000000000000000005" |
    | decimal(38,37) |  | 1.0000000000000000000000000000000000005 |  | "1.0000000000000000000000000000000000005" |
    | decimal(38,38) |  | 0.00000000000000000000000000000000000001 |  | "0.00000000000000000000000000000000000001" |
    | decimal(37,1) |  | refused |  | "1.05" |
    | decimal(38,0) |  | refused |  | "1.5" |
    | decimal(38,38) |  | refused |  | "1" |
    | decimal(37,1) |  | 1.0 |  | "1.0" |
    | decimal(38,0) |  | 12345678901234567890123456789012345678 |  | "12345678901234567890123456789012345678" |
    | double |  | 1.5 |  | "1.5" |
    | double |  | 0.1 |  | "0.1" |
    | double |  | 1000.0 |  | "1e3" |
    | double |  | -0.0 |  | "-0" |
    | double |  | 0.5 |  | ".5" |
    | double |  | 1.0E308 |  | "1e308" |
    | double |  | refused |  | "1e400", "-1e400", "1e-400", "0x1p3", "1f", "1d", "1.5D", "inf", "nan", "1,5" |
    | double |  | 0.0 |  | "0e-400" |
    | double |  | NaN |  | "NaN" |
    | double |  | Infinity |  | "Infinity" |
    | double |  | -Infinity |  | "-Infinity" |
    | float |  | 1.0E38 |  | "1e38" |
    | float |  | refused |  | "1e39", "1e-50" |
    | boolean |  | true |  | "true", " True " |
    | boolean |  | false |  | "FALSE" |
    | boolean |  | refused |  | "t", "yes", "1", "0", "on" |
    | binary |  | 41 |  | "QQ==" |
    | binary |  | 4142 |  | "QUI=" |
    | binary |  |  | NULL | "" |
    | binary |  | refused |  | "QQ", "QR==", "Q-_=", "A" |
    | date |  | 2024-02-29 |  | "2024-02-29", " 2024-02-29 " |
    | date |  | 2024-02-09 |  | "2024-2-9" |
    | date |  | refused |  | "2023-02-29", "2024-02-30", "2024-13-01", "2024-00-01", "0000-01-01", "10000-01-01" |
    | date |  | refused |  | "-0001-01-01", "2024", "2024-02", "20240229", "29.02.2024", "2024/02/29" |
    | date |  | refused |  | "2024-02-29T00:00:00", "\u0662024-01-01", "today" |
    | date |  | 0001-01-01 |  | "0001-01-01" |
    | date |  | 9999-12-31 |  | "9999-12-31" |
    | timestamp |  | 2024-07-01 10:00:00 |  | "2024-07-01T10:00:00Z", "2024-07-01 10:00:00Z", "2024-07-01T10:00Z" |
    | timestamp |  | 2024-07-01 10:00:00 |  | "2024-07-01T10:00:00Z ", "2024-07-01 10:00:00 UTC" |
    | timestamp |  | 2024-07-01 10:00:00 |  | "2024-07-01 10:00:00 GMT" |
    | timestamp |  | 2024-07-01 09:00:00 |  | " 2024-07-01T10:00:00+01:00 ", "2024-07-01T10:00:00 +01:00" |
    | timestamp |  | 2024-07-01 09:00:00 |  | "2024-07-01T10:00:00+0100", "2024-07-01T10:00:00+01" |
    | timestamp |  | 2024-07-01 09:00:00 |  | "2024-07-01T10:00:00+1", "2024-07-01T10:00:00UTC+01:00" |
    | timestamp |  | 2024-07-01 15:30:00 |  | "2024-07-01T10:00:00-05:30" |
    | timestamp |  | 2024-07-01 08:00:00 |  | "2024-07-01T10:00:00 Europe/Berlin" |
    | timestamp |  | 2024-10-27 00:30:00 |  | "2024-10-27T02:30:00 Europe/Berlin" |
    | timestamp |  | refused |  | "2024-03-31T02:30:00 Europe/Berlin", "2024-07-01T10:00:00 Europe/Berln" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00+25:00", "2024-07-01T10:00:00+01:60" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00+130", "2024-07-01T10:00:00z", "2024-07-01t10:00:00Z" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00 CET", "2024-07-01T10:00:00 EST", "2024-07-01T10:00:00 PST" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00 UT", "2024-07-01T10:00:00GMT0", "2024-07-01T10:00:00EST5EDT" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00 Zulu", "2024-07-01T10:00:00+01:00[Europe/Berlin]" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00ZZ", "2024-07-01T24:00:00Z", "2024-06-30T23:59:60Z" |
    | timestamp |  | refused |  | "2024-07-01T10:60:00Z", "2024-02-30T10:00:00Z", "2024-07-01T10Z", "T10:00:00Z" |
    | timestamp |  | refused |  | "10:00:00Z", "2024-07-01Z", "20240701T100000Z", "1719828000" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00,5Z", "2024-07-01  10:00:00Z" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00.123456789Z", "2024-07-01T10:00:00.0000001Z" |
    | timestamp |  | refused |  | "2024-07-01T10:00:00.Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00" |
    | timestamp |  | refused |  | "0000-07-01T10:00:00Z", "10000-07-01T10:00:00Z", "2024-07-01T10:00:00" |
    | timestamp |  | refused |  | "2024-07-01" |
    | timestamp |  | 2024-07-01 10:00:00.5 |  | "2024-07-01T10:00:00.5Z" |
    | timestamp |  | 2024-07-01 10:00:00.123456 |  | "2024-07-01T10:00:00.123456Z", "2024-07-01T10:00:00.123456000Z" |
    | timestamp |  | 0001-01-01 00:00:00 |  | "0001-01-01T00:00:00Z" |
    | timestamp |  | 9999-12-31 23:59:59.999999 |  | "9999-12-31T23:59:59.999999Z" |
    | timestamp | Europe/Berlin | 2024-07-01 08:00:00 |  | "2024-07-01T10:00:00", "2024-07-01 10:00" |
    | timestamp | Europe/Berlin | 2024-07-01 08:00:00.5 |  | " 2024-07-01 10:00:00.5 " |
    | timestamp | Europe/Berlin | 2024-06-30 22:00:00 |  | "2024-07-01" |
    | timestamp | Europe/Berlin | 2024-10-27 00:30:00 |  | "2024-10-27T02:30:00" |
    | timestamp | Europe/Berlin | refused |  | "2024-03-31T02:30:00", "2024-07-01T10:00:00 CET" |
    | timestamp | Europe/Berlin | refused |  | "2024-07-01T10:00:00 JST", "2024-07-01T10:00:00 UT" |
    | timestamp | Europe/Berlin | refused |  | "2024-07-01T10:00:00GMT0", "2024-07-01T10:00:00EST5EDT" |
    | timestamp | Europe/Berlin | refused |  | "2024-07-01T10:00:00 Zulu", "2024-07-01T10:00:00.1234567" |
    | timestamp | Europe/Berlin | refused |  | "2024-07-01T24:00:00", "2024-07", "2024-07-01T10" |
    | timestamp | Europe/Berlin | refused |  | "2024-07-01T10:00:00z" |
    | timestamp | Europe/Berlin | 2024-07-01 10:00:00 |  | "2024-07-01T10:00:00Z", "2024-07-01T10:00:00Z " |
    | timestamp | Europe/Berlin | 2024-07-01 09:00:00 |  | "2024-07-01T10:00:00+01:00 " |
    | string |  | as it is |  | "a", " a ", "NULL", "\u0000", "a\u0000b", "5", "1.10", "\ud83d\ude00", "\ufffd" |
    | string |  | as it is | NULL | "" |

    Args:
        zone: Zone of instants that are written without one; without it they are refused.
    """

    zone: str | None = None

    def value(self, text: Column, kind: str) -> Column:
        """Return a text as a value of a type; NULL if it is none."""
        if kind == "string":
            return text
        text = F.btrim(text, F.lit(SPACE))
        if kind == "boolean":
            return F.when(F.lower(text) == "true", F.lit(True)).when(F.lower(text) == "false", F.lit(False))
        if kind == "binary":
            plain = F.regexp_replace(text, "[\r\n]", "")
            return F.when(plain.rlike(_BASE64), F.try_to_binary(plain, F.lit("base64")))
        if kind == "date":
            return F.when(text.rlike(rf"^{_DAY}\z"), text.try_cast("date"))
        if kind == "timestamp":
            return self._instant(text)
        if kind in ("double", "float"):
            return _floating(text, kind)
        if kind.startswith("decimal"):
            return _decimal(text, kind)
        return F.when(text.rlike(_WHOLE), text.try_cast(kind))

    def lacks_zone(self, text: Column) -> Column:
        """Say whether a text would be an instant if a zone were known."""
        return F.btrim(text, F.lit(SPACE)).rlike(rf"^{_DAY}(?:{_TIME})?\z") if self.zone is None else F.lit(False)

    def _instant(self, text: Column) -> Column:
        read = _in_full(text).try_cast("timestamp")
        local = _in_full(F.regexp_extract(text, rf"^({_DAY}{_TIME}) ?{_REGION}\z", 1)).try_cast("timestamp")
        region = F.regexp_extract(text, rf" ?{_REGION}\z", 1)
        instant = F.when(text.rlike(_AS_USUAL), text.try_cast("timestamp"))
        instant = instant.when(text.rlike(rf"^{_DAY}{_TIME}{_OFFSET}\z"), read)
        instant = instant.when(read.isNotNull() & local.isNotNull(), _at(local, region))  # an unknown zone fails `_at`
        if self.zone is not None:
            instant = instant.when(text.rlike(rf"^{_DAY}(?:{_TIME})?\z"), _at(read, F.lit(self.zone)))
        return F.when(F.year(instant).between(1, 9999), instant)


def _in_full(text: Column) -> Column:
    """Return an instant as Spark reads it: with seconds, and without zeros behind microseconds, where it cuts."""
    short = F.regexp_replace(text, r"(\.[0-9]{6})0+", "$1")
    return F.regexp_replace(short, r"^([^T ]+[T ][0-9]+:[0-9]+)(?![0-9:])", "$1:00")


def _at(local: Column, zone: Column) -> Column:
    """Return the instant at which clocks show a time; NULL if they never do."""
    instant = F.to_utc_timestamp(local, zone)
    return F.when(F.from_utc_timestamp(instant, zone) == local, instant)


def _floating(text: Column, kind: str) -> Column:
    """Return the nearest number; NULL where that is nothing or everything."""
    number = F.when(text.rlike(_NUMBER), text.try_cast(kind))
    is_lost = (number == 0) & text.rlike(r"^[^eE]*[1-9]")
    word = F.when(text.isin("NaN", "Infinity", "-Infinity"), text.try_cast(kind))
    return F.coalesce(word, F.when((F.abs(number) != float("inf")) & ~is_lost, number))


def _decimal(text: Column, kind: str) -> Column:
    """Return a number by its digits: none of them is lost."""
    precision, scale = (int(digits) for digits in re.findall(r"\d+", kind))
    fits = rf"^[+-]?(?=\.?[0-9])0*+[0-9]{{0,{precision - scale}}}(?:\.[0-9]{{0,{scale}}}0*+)?\z"
    as_usual = rf"^-?[0-9]{{0,{precision - scale}}}(?:\.[0-9]{{0,{scale}}})?\z"
    plain = F.when(text.contains("e") | text.contains("E"), _written_out(text)).otherwise(text)
    return F.when(text.rlike(as_usual), text.try_cast(kind)).when(
        plain.rlike(fits), F.regexp_replace(plain, r"(\.[0-9]*?)0+\z", "$1").try_cast(kind)
    )


def _written_out(text: Column) -> Column:
    """Return `1.5e-3` as `0.0015`; NULL if it is no such number."""
    front, whole, behind, power = (F.regexp_extract(text, _SCIENTIFIC, group) for group in (1, 2, 3, 4))
    digits, point = F.concat(whole, behind), F.length(whole) + power.try_cast("int")
    at_left = F.concat(F.lit("0."), F.repeat(F.lit("0"), -point), digits)
    inside = F.concat(
        F.substring(digits, F.lit(1), point), F.lit("."), F.substring(digits, point + 1, F.length(digits))
    )
    at_right = F.concat(digits, F.repeat(F.lit("0"), point - F.length(digits)))
    written = F.when(point <= 0, at_left).when(point < F.length(digits), inside).otherwise(at_right)
    return F.when(text.rlike(_SCIENTIFIC) & (digits != ""), F.concat(front, written))
