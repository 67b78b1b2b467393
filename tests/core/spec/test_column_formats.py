"""What a column's `format` means, and every refusal of one in the words that `dg check defs` shows."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backfill_assets.core.schema.inference import fits
from backfill_assets.core.spec.column_formats import PatternFormat, column_format
from backfill_assets.core.spec.columns import Column
from tests.core.spec.specs import FILES, refusal_of, spec

CSV, JSON = {**FILES, "format": "csv"}, {**FILES, "format": "json"}
LIVE = {"path": "events", "starts": "2024-03-01", "late": "keep"}
ZONED = {**LIVE, "timestamps_without_zone": "Europe/Berlin"}
EXAMPLES = "`1.234,56`, `1,234.56`, `1234,56`, `1 234,56`"


@pytest.mark.parametrize(
    ("kind", "written", "message"),
    [
        ("timestamp", "epoch_milis", "there is no format `epoch_milis`; did you mean `epoch_millis`?"),
        ("timestamp", "unix", "there is no format `unix`; there are `epoch_seconds`, `epoch_millis`, `epoch_micros`, `epoch_nanos`, or a pattern such as `dd.MM.yyyy`"),
        ("timestamp", "epoch_days", "`epoch_days` is for a `date`; a `timestamp` has a time"),
        ("timestamp", "%d.%m.%Y", "`%d.%m.%Y` is written in letters alone, for example `dd.MM.yyyy HH:mm`"),
        ("timestamp", "dd.MM.yy", "`yy` in `dd.MM.yy`: two digits do not say the century; have the export write four"),
        ("timestamp", "dd.MM.YYYY", "`YYYY` in `dd.MM.YYYY`: that is the year of a week; did you mean `yyyy`?"),
        ("timestamp", "DD.MM.yyyy", "`DD` in `DD.MM.yyyy`: that is the day of a year; did you mean `dd`?"),
        ("timestamp", "yyyy-MM-ddTHH:mm", "`T` in `yyyy-MM-ddTHH:mm`: there is no field `T`; there are `yyyy`, `MM`, `M`, `MMM`, `dd`, `d`, `HH`, `H`, `hh`, `h`, "
         "`a`, `mm` and more; letters that stand for themselves have quotes around them: `'T'`"),
        ("timestamp", "yyyy-MM-dd HH:mm z", "`z` in `yyyy-MM-dd HH:mm z`: an abbreviation may stand for several zones; `XXX` (+01:00), `Z` (+0100), `VV` (Europe/Berlin) do not"),
        ("timestamp", "yyyy-MM-dd'T", "a quote in `yyyy-MM-dd'T` is not closed; two of them stand for one"),
        ("timestamp", "dd.mm.yyyy", "`dd.mm.yyyy` does not say the month, `MM` (`mm` are minutes)"),
        ("timestamp", "HH:mm", "`HH:mm` does not say the year, `yyyy`"),
        ("timestamp", "MM/yyyy", "`MM/yyyy` does not say the day, `dd`"),
        ("timestamp", "dd.MM.yyyy HH:ss", "`dd.MM.yyyy HH:ss` does not say the minute, `mm`"),
        ("timestamp", "dd.MM.yyyy HH:mm a", "`dd.MM.yyyy HH:mm a`: `h` needs `a` (am or pm) beside it, and `a` needs `h`; `H` counts to 23"),
        ("timestamp", "dd.MM.yyyy MMM", "`dd.MM.yyyy MMM` says the month twice"),
        ("timestamp", "yyyyMd", "`M` in `yyyyMd` is one digit or two, and more digits follow; use `MM`"),
        ("timestamp", "yyyyMMd'00'", "`d` in `yyyyMMd'00'` is one digit or two, and more digits follow; use `dd`"),
        ("date", "dd.MM.yyyy HH:mm", "`dd.MM.yyyy HH:mm` says the hour, which a `date` does not have; what is the same in every text has quotes around it: `yyyy-MM-dd' 00:00:00'`"),
        ("date", "day", "there is no format `day`; there are `epoch_seconds`, `epoch_millis`, `epoch_micros`, `epoch_nanos`, `epoch_days`, or a pattern such as `dd.MM.yyyy`"),
        ("decimal(18,2)", "1,5", f"`1,5` is not the number 1234.56 as it is written: {EXAMPLES}"),
        ("decimal(18,2)", "1,234,56", f"`1,234,56` is not the number 1234.56 as it is written: {EXAMPLES}"),
        ("double", "comma", f"`comma` is not the number 1234.56 as it is written: {EXAMPLES}"),
        ("double", "1234.56", "`1234.56` is how numbers are read without it; leave it out"),
        ("bigint", "1234", "`1234` is how numbers are read without it; leave it out"),
        ("bigint", "1.234,56", "`1.234,56` is not the number 1234 as it is written: `1.234`, `1,234`, `1 234`"),
        ("string", "epoch_millis", "a `string` is written in one way; it is for instants, days and numbers"),
        ("boolean", "Y/N", "a `boolean` is written in one way; it is for instants, days and numbers"),
    ],
)  # fmt: skip
def test_a_format_that_leaves_a_doubt_is_refused(kind, written, message):
    """The message says what it lacks, and what may have been meant."""
    assert refusal_of(Column, type=kind, format=written) == f"format: {message}"


@pytest.mark.parametrize(
    ("source", "live", "column", "message"),
    [
        (CSV, None, {"format": "dd.MM.yyyy"},
         "source.timestamps_without_zone: `created_at` says `format: dd.MM.yyyy`, which has no zone; say here which"),
        (FILES, LIVE, {"format": "dd.MM.yyyy"},
         "live.timestamps_without_zone: `created_at` says `format: dd.MM.yyyy`, which has no zone; say here which"),
        (JSON, None, {"type": "decimal(18,2)", "format": "1.234,56"},
         "columns: `amount` says `format: 1.234,56`, and in JSON (source) that could also be the number 1.234; have it written as a number there"),
        (CSV, ZONED, {"type": "bigint", "format": "1.234"},
         "columns: `amount` says `format: 1.234`, and in JSON (live) that could also be the number 1.234; have it written as a number there"),
    ],
)  # fmt: skip
def test_a_format_that_the_table_cannot_have_is_refused(source, live, column, message):
    """A format without a zone needs one, and a point between thousands is none in JSON."""
    kinds = {"created_at": {"type": "timestamp"}, "amount": {"type": "double"}}
    named = "amount" if "type" in column else "created_at"
    columns = {**kinds, named: {**kinds[named], **column}}
    assert refusal_of(spec, columns=columns, source=source, live=live) == message


@pytest.mark.parametrize(
    ("source", "live"),
    [(CSV, None), (JSON, None), (CSV, LIVE), (FILES, LIVE), ({"kind": "delta", "tables": ["bronze/raw"]}, LIVE)],
    ids=["csv", "json", "both", "live beside Parquet", "live beside tables"],
)
def test_a_format_is_for_whatever_is_read_as_text(source, live):
    """History in CSV and JSON, and live events beside any history, may have columns with a format."""
    columns = {
        "created_at": {"type": "timestamp", "format": "epoch_millis"},
        "day": {"type": "date", "format": "dd.MM.yyyy"},  # a day needs no zone
        "at": {"type": "timestamp", "format": "dd/MMM/yyyy:HH:mm:ss Z"},  # nor does an instant that says its own
        "amount": {"type": "decimal(18,2)", "format": "1,234.56"},
    }
    made = spec(columns=columns, source=source, live=live)
    assert [column.format for column in made.columns.values()] == [column["format"] for column in columns.values()]


def test_a_format_is_part_of_a_spec_where_it_is_given():
    """What a spec from before there was a choice says is what it said: only a format makes it another."""
    plain, other = (Column(type="timestamp", format=written) for written in (None, "epoch_millis"))
    assert "format" not in plain.model_dump_json()
    assert '"format":"epoch_millis"' in other.model_dump_json()
    assert Column.model_validate_json(other.model_dump_json()) == other


def test_a_pattern_has_a_group_for_each_field():
    """What stands between the letters stands for itself, in quotes or not, whatever it means in an expression."""
    written = column_format("yyyy'y' MM+dd''HH.mm", "timestamp")
    assert isinstance(written, PatternFormat)
    assert written.fields == ("year", "month", "day", "hour", "minute")
    assert written.describes("2024y 02+29'23.59")
    assert not any(map(written.describes, ["2024y 022+29'23.59", "2024y 02+29'23:59", "2024y 02+29'23.59 ago"]))


@pytest.mark.parametrize(
    ("kind", "written", "right", "wrong"),
    [
        ("timestamp", "epoch_millis", [1719828000123, Decimal("1719828000.5"), "1719828000123"], ["x", True, [1], "2024-07-01T10:00:00Z"]),
        ("date", "dd.MM.yyyy", ["29.02.2024", None], ["2024-02-29", 20240229]),
        ("date", "yyyyMMdd", ["20240229", 20240229], ["2024-02-29"]),
        ("double", "1,234.56", ["1,234.5", 1234.5, 5], ["1,23.5", "1.234,5"]),
    ],
)  # fmt: skip
def test_values_in_a_format_are_of_the_columns_type(kind, written, right, wrong):
    """What `schema` finds in JSON is the declared type, and not another one, if it is written as declared."""
    assert [fits(value, kind, column_format(written, kind)) for value in [*right, *wrong]] == [True] * len(right) + [
        False
    ] * len(wrong)
