"""The specification of a table: short forms, and every refusal in the words that `dg check defs` shows."""

from __future__ import annotations

from datetime import date

import pytest
from pydantic import ValidationError

from backfill_assets.core.spec.files import LAYOUTS, DeltaSource, FilesSource, known_zone
from backfill_assets.core.spec.table import (
    MAX_PARTITIONS_PER_COMMIT,
    PRIMITIVE_TYPES,
    ChunkSize,
    Column,
    Rule,
    Severity,
    TableSpec,
    check_together,
)
from backfill_assets.core.calendar.windows import Grain

FILES = {"kind": "files", "path": "orders", "format": "parquet"}
PLAIN = {
    "key": "bronze/orders",
    "columns": {"order_id": "bigint not null", "created_at": "timestamp", "amount": "decimal(18,2)"},
    "event_time": "created_at",
    "grain": "daily",
    "start": "2024-01-01",
    "source": FILES,
}


def spec(**changes):
    return TableSpec.model_validate({**PLAIN, **changes})


def refusal_of(make, *args, **changes):
    """Return the one message with which something is refused, without pydantic's prefix."""
    with pytest.raises(ValidationError) as caught:
        make(*args, **changes)
    (error,) = caught.value.errors()
    return error["msg"].removeprefix("Value error, ")


# -- what a spec is ----------------------------------------------------------------------------------------------------


def test_a_short_spec_gets_plain_defaults():
    """What is left out means: no key, UTC, partition column `dt`, nothing emptied, errors stop, a year a commit."""
    made = spec()
    assert (made.layer, made.name) == ("bronze", "orders")
    assert made.grid.grain is Grain.DAILY
    assert (made.grid.start, made.grid.zone_name) == (date(2024, 1, 1), "UTC")
    assert (made.key_columns, made.partition_column, made.empty) == ([], "dt", "refused")
    assert (made.checks.severity, made.checks.separate) == (Severity.ERROR, [])
    assert (made.max_partitions_per_chunk, made.chunk.max_source_bytes) == (366, 4 * 1024**3)
    assert isinstance(made.source, FilesSource)
    assert (made.source.layout, made.source.gaps, made.source.complete_when) == ("{year}/{month}/{day}", "refused", "folder_exists")


def test_a_spec_survives_a_round_trip_through_json():
    """A spec that is written as JSON and read again is the same."""
    made = spec(
        key_columns=["order_id"],
        latest_wins_by=["created_at"],
        time_zone="Europe/Berlin",
        grain="monthly",
        checks={"severity": "warn", "separate": ["keys_are_unique"]},
        source={"kind": "delta", "tables": ["bronze/raw", {"table": "bronze/more", "start_offset": -1}], "transform": ".t.f"},
        tags={"team": "sales"},
        chunk={"max_partitions": 12},
    )
    assert TableSpec.model_validate_json(made.model_dump_json()) == made
    assert TableSpec.model_validate(made.model_dump()) == made


def test_a_spec_cannot_be_changed():
    """A spec is a value: an assignment is refused."""
    with pytest.raises(ValidationError, match="frozen"):
        spec().key = "bronze/others"  # type: ignore[misc]


def test_columns_in_which_null_is_refused():
    """NULL is refused in what is `not null`, in key columns and in the event time; in the columns' order."""
    columns = {"a": "int", "b": "int not null", "c": "int", "created_at": "timestamp"}
    assert spec(columns=columns, key_columns=["c"]).required_columns == ["b", "c", "created_at"]


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "kind", "nullable"),
    [
        ("bigint", "bigint", True),
        ("bigint not null", "bigint", False),
        ("BIGINT  NOT NULL", "bigint", False),
        ("integer", "int", True),
        ("long not null", "bigint", False),
        ("decimal(18,2)", "decimal(18,2)", True),
        ("Decimal( 38, 0 ) not null", "decimal(38,0)", False),
        ("decimal(5,5)", "decimal(5,5)", True),
    ],
)
def test_short_forms_of_columns(short, kind, nullable):
    """A column can be written as in SQL, in any case and spacing; other names of a type become Spark's."""
    column = Column.model_validate(short)
    assert (column.type, column.nullable, column.optional) == (kind, nullable, False)


@pytest.mark.parametrize("kind", PRIMITIVE_TYPES)
def test_every_documented_type_is_known(kind):
    """Each type that the field's description lists can be used, in both forms."""
    assert Column.model_validate(kind) == Column.model_validate({"type": kind}) == Column(type=kind)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bigin", "there is no type `bigin`; did you mean `bigint`?"),
        ("varchar2", "there is no type `varchar2`; there are `boolean`, `tinyint`, `smallint`, `int`, `bigint`, `float`, `double`, "
         "`string`, `binary`, `date`, `timestamp`, `decimal(18,2)`"),
        ("decimal", "there is no type `decimal`; did you mean `decimal(18,2)`?"),
        ("timestamp null", "there is no type `timestampnull`; did you mean `timestamp`?"),
        ("decimal(39,2)", "`decimal(39,2)`: a decimal has 1 to 38 digits, and no more behind the point than in all"),
        ("decimal(0,0)", "`decimal(0,0)`: a decimal has 1 to 38 digits, and no more behind the point than in all"),
        ("decimal(5,6)", "`decimal(5,6)`: a decimal has 1 to 38 digits, and no more behind the point than in all"),
    ],
)  # fmt: skip
def test_an_unknown_type_is_refused(kind, message):
    """The message names the type and the one that may have been meant, or those that there are."""
    assert refusal_of(Column.model_validate, kind) == message


@pytest.mark.parametrize("name", ["order id", "a,b", "a;b", "a{b", "a}b", "a(b", "a)b", "a\nb", "a\tb", "a=b", ""])
def test_a_column_name_that_delta_refuses_is_refused(name):
    """Names that a Delta table without column mapping cannot have are refused when the spec is read."""
    message = refusal_of(spec, columns={name: "int", "created_at": "timestamp"})
    assert message == f"`{name}`: a column name has no space and none of `,;{{}}()=`"


def test_our_own_column_names_are_refused():
    """Names under which staged rows carry our own columns are not for tables."""
    message = refusal_of(spec, columns={"_ba_home": "string", "created_at": "timestamp"})
    assert message == "`_ba_home`: names that start with `_ba_` are kept for this project's own columns"


def test_columns_that_differ_only_in_case_are_refused():
    """Delta would take them for one."""
    message = refusal_of(spec, columns={"id": "int", "ID": "int", "created_at": "timestamp"})
    assert message == "`id`, `ID` differ only in case; Delta takes them for one column"


def test_a_table_without_columns_is_refused():
    """There must be a column."""
    assert refusal_of(spec, columns={}) == "Dictionary should have at least 1 item after validation, not 0"


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["orders", "a/b/c", "Bronze/orders", "bronze/", "/orders", "1ronze/orders", "bronze/or ders", "bronze/../x"]
)
def test_a_key_that_is_not_layer_and_name_is_refused(key):
    """A key is a folder and an asset key at once, so its form is narrow."""
    assert refusal_of(spec, key=key) == (
        f"`{key}`: a key is `layer/name`, both of small letters, digits and `_`, for example `bronze/orders`"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_columns": ["order_ID"]}, "key_columns: there is no column `order_ID`; did you mean `order_id`?"),
        ({"key_columns": ["xyz"]}, "key_columns: there is no column `xyz`; there are `order_id`, `created_at`, `amount`"),
        ({"key_columns": ["order_id", "order_id"]}, "key_columns: `order_id`, `order_id` names a column twice"),
        ({"event_time": "created"}, "event_time: there is no column `created`; did you mean `created_at`?"),
        ({"event_time": "amount"}, "event_time: `amount` is a `decimal(18,2)`; it must be a `timestamp` or a `date`"),
        ({"latest_wins_by": ["created"]}, "latest_wins_by: there is no column `created`; did you mean `created_at`?"),
        ({"latest_wins_by": ["created_at"]}, "latest_wins_by: needs `key_columns`, else there are no rows with the same key"),
        ({"statistics_columns": ["amont"]}, "statistics_columns: there is no column `amont`; did you mean `amount`?"),
        (
            {"partition_column": "Amount"},
            "partition_column: `Amount` is among the columns; it is added by itself, so rename one, "
            "for example `partition_column: partition_day`",
        ),
        ({"partition_column": "order day"}, "`order day`: a column name has no space and none of `,;{}()=`"),
        ({"partition_column": "_ba_day"}, "`_ba_day`: names that start with `_ba_` are kept for this project's own columns"),
        (
            {"grain": "weekly", "start": "2024-01-03"},
            "start: `2024-01-03` is not the first day of a weekly partition; the one that holds it starts on `2024-01-01`",
        ),
        (
            {"grain": "monthly", "start": "2024-02-29"},
            "start: `2024-02-29` is not the first day of a monthly partition; the one that holds it starts on `2024-02-01`",
        ),
        ({"time_zone": "Europe/Berln"}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        ({"grain": "yearly"}, "Input should be 'hourly', 'daily', 'weekly' or 'monthly'"),
        (
            {"grain": "hourly", "time_zone": "Australia/Lord_Howe"},
            "time_zone: the clocks of `Australia/Lord_Howe` move by part of an hour, and an hour of it is not always an hour long; "
            "use `time_zone: UTC`, or `grain: daily`",
        ),
        ({"empty": "sometimes"}, "Input should be 'refused' or 'allowed'"),
        ({"colour": "blue"}, "Extra inputs are not permitted"),
        ({"chunk": {"max_partitions": 0}}, "Input should be greater than or equal to 1"),
        ({"chunk": {"max_partitions": 2001}}, "Input should be less than or equal to 2000"),
        ({"chunk": {"max_source_bytes": 0}}, "Input should be greater than or equal to 1"),
        ({"checks": {"severity": "loud"}}, "Input should be 'error' or 'warn'"),
        (
            {"checks": {"separate": ["rows_match"]}},
            "Input should be 'rows_match_source', 'keys_are_unique', 'rows_inside_partition' or 'schema_matches'",
        ),
    ],
)  # fmt: skip
def test_a_spec_that_contradicts_itself_is_refused(changes, message):
    """Each contradiction is named with the value and what would be right."""
    assert refusal_of(spec, **changes) == message


def test_an_unknown_zone_without_a_likeness_shows_a_few():
    """Where nothing is close, the message lists a dozen zones and says that there are more."""
    with pytest.raises(ValueError, match=r"there is no time zone `42`; there are `Africa/Abidjan`, `Africa/Accra`") as caught:
        known_zone("42")
    assert str(caught.value).endswith(" and more")
    assert str(caught.value).count("`") == 2 * 13


def test_a_commit_holds_no_more_partitions_than_a_receipt():
    """The largest chunk is what a receipt may hold."""
    assert ChunkSize(max_partitions=MAX_PARTITIONS_PER_COMMIT).max_partitions == 2_000


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_an_event_time_is_a_timestamp_or_a_date(kind):
    """Both types decide a partition."""
    assert spec(columns={"created_at": kind}).columns["created_at"].type == kind


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "template"),
    [
        ("year/month/day", "{year}/{month}/{day}"),
        ("hive", "year={year}/month={month}/day={day}"),
        ("dt={date}", "dt={date}"),
        ("/{year}/{month}{day}/", "{year}/{month}{day}"),
        ("export-{year}-{month}-{day}", "export-{year}-{month}-{day}"),
    ],
)
def test_layouts(written, template):
    """The two names stand for templates; a template of one's own is kept, without slashes at its ends."""
    assert FilesSource(path="x", format="json", layout=written).layout == template


def test_a_layout_by_name_says_the_day():
    """Every named layout but `flat` can be filled in with a year, a month and a day."""
    filled = {name: layout.format(year="2024", month="02", day="29") for name, layout in LAYOUTS.items()}
    assert filled == {"year/month/day": "2024/02/29", "hive": "year=2024/month=02/day=29", "flat": "flat"}


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("{year}/{mon}/{day}", "there is no field `mon`; did you mean `month`?"),
        ("{week_no}", "there is no field `week_no`; there are `date`, `day`, `hour`, `month`, `year`"),
        ("{hour}", "`{hour}` does not say the day, without which `hour` could be any"),
        ("{year}/{hour}", "`{year}/{hour}` does not say the day, without which `hour`, `year` could be any"),
        ("{year}/{day}", "`{year}/{day}` does not say the month, without which `day`, `year` could be any"),
        ("{month}", "`{month}` does not say the year, without which `month` could be any"),
        ("{year:04d}/{month}/{day}", "there is no field `year:04d`; did you mean `year`?"),
        (
            "daily",
            "`daily` says no time: use `year/month/day`, `hive`, a template such as `dt={date}`, or `flat` where names say nothing",
        ),
    ],
)
def test_a_layout_that_says_no_time_is_refused(layout, message):
    """A template has known fields, and each with those that it is a part of."""
    assert refusal_of(FilesSource, path="x", format="json", layout=layout) == message


def test_files_of_an_unknown_form_or_zone_are_refused():
    """The format is one of three; a zone for timestamps is an IANA name."""
    assert refusal_of(FilesSource, path="x", format="avro") == "Input should be 'parquet', 'json' or 'csv'"
    assert refusal_of(FilesSource, path="x", format="json", timestamps_without_zone="CET+1") == (
        "there is no time zone `CET+1`; did you mean `CET`?"
    )
    assert FilesSource(path="x", format="json", timestamps_without_zone="Asia/Kolkata").timestamps_without_zone == "Asia/Kolkata"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "json", "csv": {}}, "csv: is for `format: csv`, and the format is `json`"),
        ({"csv": {"delimiter": "||"}}, "csv.delimiter: `||` is not one character"),
        ({"csv": {"delimiter": ""}}, "csv.delimiter: `` is not one character"),
        ({"csv": {"escape": ""}}, "csv.escape: `` is not one character"),
        ({"csv": {"quote": "\n"}}, "csv.quote: a line's end parts records, not fields"),
        ({"csv": {"delimiter": '"'}}, 'csv.delimiter: `"` is the quote or the escape too; each needs a character of its own'),
        ({"csv": {"multi_line": True}}, "Extra inputs are not permitted"),
        (
            {"layout": "flat", "complete_until": None},
            "complete_until: `layout: flat` needs it, since no name says up to which day the files are complete",
        ),
        (
            {"layout": "flat", "complete_until": None, "complete_when": "success_marker"},
            "complete_when: with `layout: flat` a `_SUCCESS` file names no time; give `complete_until`, a date",
        ),
        (
            {"layout": "flat", "path_time_zone": "Asia/Kolkata"},
            "path_time_zone: with `layout: flat` names have no days that could lie in a zone",
        ),
        (
            {"complete_when": "success_marker"},
            "complete_until: and `complete_when: success_marker` both say what is complete; give one",
        ),
        (
            {"layout": "{year}/orders_{date}.csv", "complete_when": "success_marker", "complete_until": None},
            "complete_when: the time is in the files' names (`{year}/orders_{date}.csv`), so a `_SUCCESS` file beside them says nothing "
            "of one; use `folder_exists` or `complete_until`",
        ),
        ({"path_time_zone": "Europe/Berln"}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        (
            {"modified_after": "2024-01-01T00:00:00"},
            "`2024-01-01T00:00:00` has no time zone; write it with one, for example `2024-01-01T00:00:00Z`",
        ),
        (
            {"modified_before": date(2024, 1, 1)},
            "`2024-01-01T00:00:00` has no time zone; write it with one, for example `2024-01-01T00:00:00Z`",
        ),
        (
            {"modified_after": "2024-01-02T00:00:00Z", "modified_before": "2024-01-02T01:00:00+01:00"},
            "modified_before: `2024-01-02T01:00:00+01:00` does not lie after `modified_after`, `2024-01-02T00:00:00+00:00`, "
            "so there could be no file",
        ),
    ],
)
def test_files_whose_fields_contradict_each_other_are_refused(fields, message):
    """Each contradiction is named with the field, the value and what would be right."""
    facts = {"path": "x", "format": "csv", "complete_until": "2025-01-01", **fields}
    assert refusal_of(FilesSource.model_validate, facts) == message


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        (
            {"begin": "2024-02-02"}, {"grain": "monthly"},
            "source.begin: `2024-02-02` is not the first day of a monthly partition; the one that holds it starts on `2024-02-01`",
        ),
        ({"begin": "2023-12-31"}, {}, "source.begin: `2023-12-31` lies before the table's start, `2024-01-01`"),
        (
            {"complete_until": "2024-01-01"}, {},
            "source.complete_until: `2024-01-01` does not lie after the history's first day, `2024-01-01`",
        ),
        (
            {"complete_until": "2024-02-01", "begin": "2024-02-01"}, {},
            "source.complete_until: `2024-02-01` does not lie after the history's first day, `2024-02-01`",
        ),
        (
            {"path_time_zone": "Europe/Berlin"}, {"columns": {"order_id": "bigint", "created_at": "date"}},
            "source.path_time_zone: `Europe/Berlin` is not the table's zone (`UTC`), and `created_at` is a `date`: "
            "no row could say on which of two days it lies",
        ),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_their_table_are_refused(source, changes, message):
    """The history begins on a partition of the table, ends after that, and a date needs no second zone."""
    assert refusal_of(spec, source={**FILES, **source}, **changes) == message


def test_csv_is_written_as_most_do_unless_said():
    """A header, commas, double quotes that are doubled inside, and nothing for NULL."""
    form = FilesSource(path="x", format="csv").csv_form
    assert (form.header, form.delimiter, form.quote, form.escape, form.null_value) == (True, ",", '"', '"', "")


def test_an_unknown_kind_of_source_is_refused():
    """The message lists the kinds that there are."""
    message = refusal_of(spec, source={"kind": "jdbc"})
    assert message == "Input tag 'jdbc' found using 'kind' does not match any of the expected tags: 'files', 'delta'"


# -- the live stream ---------------------------------------------------------------------------------------------------

LIVE = {"path": "events", "starts": "2024-03-01"}
FOLDING = {"key_columns": ["order_id"], "latest_wins_by": ["created_at"]}


def live_spec(live=LIVE, **changes):
    return spec(**{**FOLDING, **changes}, live=live)


def test_a_table_has_no_live_stream_unless_it_says_so():
    """Without a `live:` block there is no stream, and so no fence."""
    assert spec().live is None


def test_a_short_live_block_gets_plain_defaults():
    """A folder and a first day are enough: late rows are folded, and every wait and size has a plain value."""
    live = live_spec().live
    assert live is not None
    assert (live.path, live.starts, live.late) == ("events", date(2024, 3, 1), "fold")
    assert (live.trigger_seconds, live.max_files_per_trigger, live.max_future_seconds) == (10, 100, 3600)
    assert (live.silent_after_seconds, live.closed_after_seconds, live.max_publish_seconds) == (900, 900, 20)
    assert live.timestamps_without_zone is None


def test_a_live_block_survives_a_round_trip_through_json():
    """A spec with a stream that is written as JSON and read again is the same."""
    made = live_spec({**LIVE, "late": "keep", "timestamps_without_zone": "Asia/Kolkata", "trigger_seconds": 0.5})
    assert TableSpec.model_validate_json(made.model_dump_json()) == made
    assert TableSpec.model_validate(made.model_dump()) == made


@pytest.mark.parametrize("late", ["keep", "ignore"])
def test_late_rows_that_are_not_folded_need_no_key(late):
    """Only folding needs a key and an order; a table without them can keep or ignore what comes late."""
    live = spec(live={**LIVE, "late": late}).live
    assert live is not None
    assert live.late == late


@pytest.mark.parametrize("starts", ["2024-01-01", "2024-02-29", "2999-01-01"])
def test_a_stream_may_start_with_the_table_or_any_time_after(starts):
    """The first fence may be the table's start: then history has nothing until it is moved."""
    live = live_spec({**LIVE, "starts": starts}).live
    assert live is not None
    assert live.starts == date.fromisoformat(starts)


NO_FOLD = (
    "live.late: `fold` needs `key_columns` and `latest_wins_by`, else an event that is in the source too would count twice; "
    "use `late: keep` (reported) or `late: ignore`"
)


@pytest.mark.parametrize(
    ("live", "changes", "message"),
    [
        (
            {"starts": "2024-03-05"}, {"grain": "weekly"},
            "live.starts: `2024-03-05` is not the first day of a weekly partition; the one that holds it starts on `2024-03-04`",
        ),
        (
            {"starts": "2024-03-02"}, {"grain": "monthly"},
            "live.starts: `2024-03-02` is not the first day of a monthly partition; the one that holds it starts on `2024-03-01`",
        ),
        ({"starts": "2023-12-31"}, {}, "live.starts: `2023-12-31` lies before the table's start, `2024-01-01`"),
        ({}, {"key_columns": [], "latest_wins_by": []}, NO_FOLD),
        ({}, {"latest_wins_by": []}, NO_FOLD),
        (
            {"late": "keep"}, {"columns": {"order_id": "bigint", "created_at": "date"}},
            "live: the event time `created_at` must be a `timestamp`",
        ),
        ({"timestamps_without_zone": "Europe/Berln"}, {}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        ({"late": "drop"}, {}, "Input should be 'fold', 'keep' or 'ignore'"),
        ({"colour": "blue"}, {}, "Extra inputs are not permitted"),
        ({"trigger_seconds": 0}, {}, "Input should be greater than 0"),
        ({"max_files_per_trigger": 0}, {}, "Input should be greater than or equal to 1"),
        ({"max_future_seconds": -1}, {}, "Input should be greater than or equal to 0"),
        ({"silent_after_seconds": 0}, {}, "Input should be greater than or equal to 1"),
        ({"closed_after_seconds": -1}, {}, "Input should be greater than or equal to 0"),
        ({"max_publish_seconds": 0}, {}, "Input should be greater than 0"),
        ({"starts": "soon"}, {}, "Input should be a valid date or datetime, input is too short"),
    ],
)  # fmt: skip
def test_a_live_block_that_cannot_be_is_refused(live, changes, message):
    """Each contradiction between the stream and its table is named with the value and what would be right."""
    assert refusal_of(live_spec, {**LIVE, **live}, **changes) == message


@pytest.mark.parametrize("field", ["path", "starts"])
def test_a_live_block_says_where_and_from_when(field):
    """The folder and the first day have no default."""
    assert refusal_of(live_spec, {name: value for name, value in LIVE.items() if name != field}) == "Field required"


# -- other tables ------------------------------------------------------------------------------------------------------


def test_short_form_of_an_input():
    """A table that is read without offsets is just its key."""
    source = DeltaSource.model_validate({"tables": ["bronze/orders"]})
    assert (source.tables[0].table, source.tables[0].start_offset, source.tables[0].end_offset) == ("bronze/orders", 0, 0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"kind": "delta", "tables": []}, "List should have at least 1 item after validation, not 0"),
        ({"kind": "delta", "tables": ["bronze/orders"]}, "source: `bronze/orders` cannot be made from itself"),
        (
            {"kind": "delta", "tables": ["bronze/a", "bronze/b"]},
            "source: with more than one table a `transform` must say how they become one",
        ),
        ({"kind": "delta", "tables": [{"table": "bronze/a", "start_offset": 1}]}, "Input should be less than or equal to 0"),
        ({"kind": "delta", "tables": [{"table": "bronze/a", "end_offset": -1}]}, "Input should be greater than or equal to 0"),
    ],
)
def test_a_source_of_tables_that_cannot_be_is_refused(source, message):
    """A table is not made from itself, nor from several without a transform; offsets only widen."""
    assert refusal_of(spec, source=source) == message


# -- all specs of a lakehouse ------------------------------------------------------------------------------------------


def reports_on(*specs):
    reports = []
    check_together({s.key: s for s in specs}, lambda key, sentence: reports.append((key, sentence)))
    return reports


def made_from(*tables, **changes):
    return spec(key="silver/sales", source={"kind": "delta", "tables": list(tables), "transform": "x.y"}, **changes)


def test_specs_that_fit_each_other_are_not_reported():
    """An input that exists and has the same zone is right, whatever its grain; files need no table."""
    assert reports_on(spec(), made_from("bronze/orders", grain="monthly")) == []


def test_an_input_that_no_spec_describes_is_reported():
    """The table is named with the input that may have been meant."""
    assert reports_on(spec(), made_from("bronze/order")) == [
        ("silver/sales", "source: there is no table `bronze/order`; did you mean `bronze/orders`?")
    ]


def test_an_input_in_another_zone_is_reported():
    """Days of two zones are not the same, so one cannot be made of the other."""
    assert reports_on(spec(), made_from("bronze/orders", time_zone="Europe/Berlin")) == [
        ("silver/sales", "time_zone: `Europe/Berlin`, but `bronze/orders` has `UTC`: a day of one is not a day of the other")
    ]


def test_an_input_that_starts_later_is_reported():
    """A table cannot start before what it is made of; from the same day on it can."""
    assert reports_on(spec(start="2024-02-01"), made_from("bronze/orders", start="2024-01-31")) == [
        ("silver/sales", "start: `2024-01-31` lies before the start of `bronze/orders` (`2024-02-01`), which it is made of")
    ]
    assert reports_on(spec(start="2024-02-01"), made_from("bronze/orders", start="2024-02-01")) == []


def test_every_contradiction_is_reported():
    """Each wrong input of each table is one report."""
    found = reports_on(spec(), made_from("bronze/orders", "xx", "yy", time_zone="Asia/Kolkata"))
    assert [sentence.split(":")[0] for _, sentence in found] == ["time_zone", "source", "source"]


def test_the_rules_are_claims():
    """The names of the rules are what holds when they are green, and are part of the YAML: they do not change."""
    assert list(Rule) == ["rows_match_source", "keys_are_unique", "rows_inside_partition", "schema_matches"]
