"""Sources of a spec: files with their layouts, other tables as inputs, and what cannot be."""

from __future__ import annotations

import pytest

from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.files import FilesSpec
from tests.core.spec.specs import FILES, refusal_of, spec

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
def test_names_of_layouts_stand_for_templates(written, template):
    """The two names stand for templates; a template of one's own is kept, without slashes at its ends."""
    assert FilesSpec(path="x", format="json", layout=written).layout == template


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("{year}/{mon}/{day}", "there is no field `mon`; did you mean `month`?"),
        ("{hour}", "`{hour}` does not say the day, without which `hour` could be any"),
        ("{month}", "`{month}` does not say the year, without which `month` could be any"),
        (
            "daily",
            "`daily` says no time: use `year/month/day`, `hive`, a template such as `dt={date}`, or `flat` where names say nothing",
        ),
    ],
)
def test_a_layout_that_says_no_time_is_refused(layout, message):
    """A template has known fields, and each with those that it is a part of."""
    assert refusal_of(FilesSpec, path="x", format="json", layout=layout) == message


def test_a_choice_that_was_not_made_is_not_part_of_the_source():
    """What a spec from before there was a choice says is what it said: only nanoseconds that are cut make it another."""
    default, cut = (FilesSpec(path="x", format="parquet", nanoseconds=how) for how in ("refused", "cut"))
    assert "nanoseconds" not in default.model_dump_json()
    assert '"nanoseconds":"cut"' in cut.model_dump_json()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"csv": {"delimiter": "||"}}, "csv.delimiter: `||` is not one character"),
        ({"csv": {"quote": "\n"}}, "csv.quote: a line's end parts records, not fields"),
        (
            {"csv": {"delimiter": '"'}},
            'csv.delimiter: `"` is the quote or the escape too; each needs a character of its own',
        ),
        ({"csv": {"multi_line": True}}, "Extra inputs are not permitted"),
        (
            {"layout": "flat", "complete_until": None},
            "complete_until: `layout: flat` needs it, since no name says up to which day the files are complete",
        ),
        ({"path_time_zone": "Europe/Berln"}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        (
            {"modified_after": "2024-01-01T00:00:00"},
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
    assert refusal_of(FilesSpec.model_validate, facts) == message


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


def test_an_unknown_kind_of_source_is_refused():
    """The message lists the kinds that there are."""
    message = refusal_of(spec, source={"kind": "kafka"})
    assert message == "there is no kind of source `kafka`; there are `files`, `jdbc`, `delta`, `version`"
    assert refusal_of(spec, source={"path": "orders"}) == "Field required"
    assert refusal_of(spec, source="orders") == "a source is a mapping that says its `kind`"


# -- other tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"kind": "delta", "tables": ["bronze/orders"]}, "source: `bronze/orders` cannot be made from itself"),
        (
            {"kind": "delta", "tables": ["bronze/a", "bronze/b"]},
            "source: with more than one table a `transform` must say how they become one",
        ),
        (
            {"kind": "delta", "tables": [{"table": "bronze/a", "start_offset": 1}]},
            "Input should be less than or equal to 0",
        ),
    ],
)
def test_a_source_of_tables_that_cannot_be_is_refused(source, message):
    """A table is not made from itself, nor from several without a transform; offsets only widen."""
    assert refusal_of(spec, source=source) == message


@pytest.mark.parametrize("table", ["crm.v2.lines", '"crm.v2".lines', "public."])
def test_name_with_a_dot_says_what_can_be_done(table):
    """No quoting lets it be named: it has to get another name, or the table another schema."""
    with pytest.raises(ValueError, match=r"ALTER SCHEMA ... RENAME TO .*ALTER TABLE ... SET SCHEMA"):
        DatabaseSpec(connection="SHOP", table=table)
