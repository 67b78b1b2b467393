"""`init` and `schema`: from a folder of files to a table, and from a change of the files to a change of both."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rich.console import Console

from backfill_assets.assets.component import TableAttributes
from backfill_assets.commands.schema_report import Proposal
from backfill_assets.commands.yaml_edit import edited
from backfill_assets.core.schema.compare import Action, ColumnChange
from backfill_assets.demo.orders import file_of, write_orders
from backfill_assets.errors import ConfigurationError
from tests.commands.schema_project import DAYS, FIRST, First, Project
from tests.support.shop import content, folder_of, multiset, opened, write_json

NO_SPARK = [
    (["init", "orders", "--from", "x"], "`orders` is not a key of a table."),
    (["init", "bronze/orders", "--from", "x"], "exists already"),
    (["schema", "bronze/nope"], "There is no table `bronze/nope`"),
]


@pytest.fixture(scope="module")
def loaded(project: Project) -> First:
    """The first `defs.yaml` of the shop's orders, launched as it is."""
    result = project.run("init", "bronze/orders", "--from", "orders")
    assert result.exit_code == 0, result.output
    assert project.launch(FIRST + timedelta(days=DAYS - 1)) == [
        (FIRST + timedelta(days=i)).isoformat() for i in range(DAYS)
    ]
    spec = project.table.spec
    return First(project.yaml.read_text(), spec, content(project.path, spec.columns))


# -- init --------------------------------------------------------------------------------------------------------------


def test_a_first_spec_loads_the_shop_without_an_edit(project, loaded):
    """Format, layout, start, types, key and event time are found, and what may be the newest row is named; what was guessed says so; the table equals the source."""
    text, spec = loaded.text, loaded.spec
    assert (spec.event_time, spec.key_columns, spec.latest_wins_by, spec.start) == (
        "ordered_at",
        ["order_id"],
        [],  # no order comes twice in the sample
        FIRST,
    )
    assert "  # latest_wins_by: [updated_at]  # by its name" in text
    assert (spec.columns["amount"].type, spec.columns["order_id"].nullable) == ("decimal(18,2)", False)
    assert "  key_columns: [order_id]  # guess: " in text
    assert "  event_time: ordered_at  # guess: 100% of " in text
    assert "    layout: year/month/day  # from 5 days" in text
    rows = [
        r
        for i in range(DAYS)
        for r in pq.read_table(file_of(project.landing / "orders", FIRST + timedelta(days=i))).to_pylist()
    ]
    newest = {row["order_id"]: row for row in sorted(rows, key=lambda row: row["updated_at"])}
    assert loaded.content == multiset(newest.values(), spec.columns)
    jsonschema.validate(yaml.load(text, Loader=yaml.BaseLoader)["attributes"], TableAttributes.model_json_schema())


def test_a_first_spec_of_json(project):
    """JSON below `hive` folders: types of the lines, an object is left out with a word, no key, instants without a zone, days that lack."""
    start = datetime(2024, 2, 28, tzinfo=UTC)
    for day in (0, 1, 3):
        at = (start + timedelta(days=day)).replace(tzinfo=None)
        lines = [{"visit": i % 3, "at": at + timedelta(hours=i), "price": 1.5, "who": {"name": "x"}} for i in range(24)]
        text = [json.dumps(line, default=datetime.isoformat) for line in lines]
        write_json(folder_of(project.landing / "visits", f"{at:%Y-%m-%d}", "year={year}/month={month}/day={day}"), text)
    result = project.run("init", "bronze/visits", "--from", "visits", "--output", "-")
    assert result.exit_code == 0, result.output
    attributes = yaml.safe_load(result.stdout)["attributes"]
    assert attributes["columns"] == {
        "visit": "bigint not null",
        "at": "timestamp not null",
        "price": "decimal(18,2) not null",
    }
    assert (attributes["key_columns"], attributes["start"], attributes["source"]["layout"]) == (
        [],
        date(2024, 2, 28),
        "hive",
    )
    assert attributes["source"]["timestamps_without_zone"] == "UTC"
    assert "# left out: who: an object; `from: who.field` reads a field of it" in result.stdout
    assert "# gaps: allowed  # 1 of 4 days have no file" in result.stdout


def test_names_of_fields_are_only_names(project):
    """A field's name with a line break in it adds no line to the YAML, and so no value that Dagster would fill in."""
    evil = 'x\n  description: "{{ env.AWS_SECRET_ACCESS_KEY }}"\u2028  owners: [a]\r#'
    rows = [{"at": f"2024-02-28T0{n}:00:00Z", evil: n, f"b{evil}": {"a": 1}} for n in range(3)]
    write_json(folder_of(project.landing / "evil", "2024-02-28"), [json.dumps(row) for row in rows])
    result = project.run("init", "bronze/evil", "--from", "evil", "--output", "-")
    assert result.exit_code == 0, result.output
    attributes = yaml.safe_load(result.stdout)["attributes"]
    assert attributes["columns"] == {"at": "timestamp not null"}
    assert {"description", "owners"} & attributes.keys() == set()
    assert len([line for line in result.stdout.splitlines() if "# left out: " in line]) == 2


def test_what_makes_no_table_is_said(project, loaded):
    """No folder, no files, no timestamp, a file that is there, a wrong key: one clear error each, and nothing written."""
    for path, rows in (
        ("numbers/2024/01/01", [{"a": 1}]),
        ("export/2024/01/01", [{"at": "2020-01-01"}]),
        ("objects/2024/01/01", [{"a": 1, "event": {"at": "2024-01-01"}, "the time": "2024-01-01"}]),
    ):
        write_json(project.landing / path, [json.dumps(row) for row in rows])
    (project.landing / "bare").mkdir()
    (project.landing / "text/2024/01/01").mkdir(parents=True)
    (project.landing / "text/2024/01/01/a.txt").write_text("x")
    for source, words in {
        "nowhere": "nowhere` is not there, or cannot be listed.",
        "bare": "There are no files below",
        "numbers": "None of the columns is a timestamp or a date: a.",
        "objects": "None of the columns is a timestamp or a date: a. Skipped `event`: an object; `from: event.field` reads "
        "a field of it, type `string` its JSON text. Skipped `the time`: its name cannot be that of a column here",
        "export": "No timestamp or date lies inside the day that its file's path names",
        "text": "are not `.parquet`, `.json`, `.jsonl`, `.ndjson`, `.csv` or `.tsv`: `2024/01/01/a.txt`",
    }.items():
        result = project.run("init", "bronze/other", "--from", source, "--output", "other.yaml")
        assert (result.exit_code, words in result.stderr) == (2, True), result.stderr
    before = project.yaml.read_text()
    for arguments, words in NO_SPARK:
        result = project.run(
            *arguments, *(["--definitions", "shop_of_schemas.definitions"] if arguments[0] == "schema" else [])
        )
        assert (result.exit_code, words in result.stderr) == (2, True), result.stderr
    assert not (project.root / "other.yaml").exists()
    assert project.yaml.read_text() == before


# -- schema ------------------------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_a_new_column_from_the_files_to_the_table(project, loaded):
    """Nothing to do; then a proposal, written with every comment kept; then the table follows, and the days to launch again are named."""
    assert project.schema().exit_code == 0
    day = FIRST + timedelta(days=DAYS)
    write_orders(project.landing / "orders", first_day=day, days=1, orders_per_day=40, seed=1)
    file = file_of(project.landing / "orders", day)
    wider = pq.read_table(file)
    pq.write_table(wider.append_column("channel", pa.array(["web"] * wider.num_rows)), file)
    text, version = project.yaml.read_text(), opened(project.path).version()

    shown = project.schema()
    assert shown.exit_code == 1, shown.output
    assert "+    channel: {type: string, optional: true}" in shown.output
    assert project.yaml.read_text() == text
    as_json = json.loads(project.schema("--json").stdout)
    (channel,) = [c for c in as_json["columns"] if c["column"] == "channel"]
    assert (channel["what"], channel["action"]) == (f"new nullable column since {day}", "add")

    code_version = project.table.code_version
    assert project.schema("--write").exit_code == 0
    lines = project.yaml.read_text().splitlines()
    assert [line for line in lines if line not in text.splitlines()] == ["    channel: {type: string, optional: true}"]
    assert [line for line in lines if "channel" not in line] == text.splitlines()
    assert opened(project.path).version() == version
    assert project.table.code_version != code_version  # so Dagster shows what is made of it as stale
    assert project.schema().exit_code == 1  # the table lacks it

    applied = project.schema("--apply")
    assert applied.exit_code == 0, applied.output
    assert f"bronze/orders: added channel (version {version + 1})." in applied.stdout
    command = "dg launch --assets 'key:\"bronze/orders\"' --partition-range 2023-01-01...2023-01-05"
    assert f"\n  {command}\n" in applied.stdout
    assert '{"ops": {"bronze__orders": {"config": {"only": "MISSING"}}}}' in applied.stdout
    assert project.launch(day, only="missing") == [(FIRST + timedelta(days=i)).isoformat() for i in range(DAYS + 1)]
    assert content(project.path, ["dt", "channel"]).keys() == {
        (FIRST + timedelta(days=i), None) for i in range(DAYS)
    } | {(day, "web")}
    again = json.loads(project.schema("--apply", "--json").stdout)
    assert (again["added"], again["to_launch"], again["version"]) == ([], [], None)
    assert project.schema().exit_code == 0


@pytest.mark.parametrize(
    ("written", "after"),
    [
        (
            "type: x\nattributes:\n  key: a/b  # the key\n  columns:\n    n: int  # how many\n\n    # the last\n    t: {type: timestamp}   # when\n\n  grain: daily\n",
            "type: x\nattributes:\n  key: a/b  # the key\n  columns:\n    n: bigint # how many\n\n    # the last\n    t: {type: timestamp}   # when\n"
            '    c: "decimal(18,2)"\n    "no": {type: string, optional: true}\n\n  grain: daily\n',
        ),
        (
            "attributes:\n  columns: {n: {type: int, nullable: false}, t: timestamp}\n  key: a/b\n",
            'attributes:\n  columns: {n: {type: bigint, nullable: false}, t: timestamp, c: "decimal(18,2)", "no": {type: string, optional: true}}\n  key: a/b\n',
        ),
        (
            "attributes:\n  key: c/d\n  columns:\n    n: int\n---\nattributes:\n  key: a/b\n  columns:\n    t: timestamp\n    n: INT not null",
            "attributes:\n  key: c/d\n  columns:\n    n: int\n---\nattributes:\n  key: a/b\n  columns:\n    t: timestamp\n    n: bigint not null\n"
            '    c: "decimal(18,2)"\n    "no": {type: string, optional: true}',
        ),
        (
            "attributes:\n  key: a/b\n  columns:\n    n: int\n    t:\n      type: string\n      description: |\n        said\n\n  # its tags\n  tags:\n    domain: x\n",
            "attributes:\n  key: a/b\n  columns:\n    n: bigint\n    t:\n      type: string\n      description: |\n        said\n"
            '\n    c: "decimal(18,2)"\n    "no": {type: string, optional: true}\n  # its tags\n  tags:\n    domain: x\n',
        ),
        (
            "attributes:\n  key: a/b\n  columns:\n    n: int\n    t:\n      type: string  # of any length\n  tags:\n    domain: x\n",
            "attributes:\n  key: a/b\n  columns:\n    n: bigint\n    t:\n      type: string  # of any length\n"
            '    c: "decimal(18,2)"\n    "no": {type: string, optional: true}\n  tags:\n    domain: x\n',
        ),
    ],
    ids=["block", "flow", "second document", "a text of lines last", "a block last"],
)  # fmt: skip
def test_an_edit_keeps_every_other_character(written, after):
    """Comments, order, blank lines and quotes stay; a name that YAML would take for something else is quoted."""
    changes = [
        ColumnChange("n", "int", "bigint", "", "", Action.WIDEN, "bigint"),
        ColumnChange("c", "", "decimal(18,2)", "", "", Action.ADD, "decimal(18,2)"),
        ColumnChange("no", "", "string", "", "", Action.ADD, "string", optional=True),
    ]
    assert edited(written, "a/b", changes) == after
    for name in ("x\x92", "\ud800x"):  # no YAML can have it, and nothing is written
        with pytest.raises(ConfigurationError, match="by hand"):
            edited(written, "a/b", [ColumnChange(name, "", "string", "", "", Action.ADD, "string")])
    with pytest.raises(
        ConfigurationError,
        match="Write by hand: `n: bigint  # the type; whatever else is said of it stays`, `c: .decimal",
    ):
        edited("attributes: {key: '{{ env.KEY }}'}\n", "a/b", changes)


def test_merged_type_is_changed_for_one_column():
    """Whatever else is merged from the same place keeps its type."""
    text = "y: &all {type: int}\nattributes:\n  key: a/b\n  columns:\n    m: *all\n    n: {<<: *all}\n"
    widened = ColumnChange("n", "int", "bigint", "", "", Action.WIDEN, "bigint")
    assert edited(text, "a/b", [widened]) == text.replace("<<: *all", "<<: *all, type: bigint")


@pytest.mark.parametrize(
    "written",
    [
        "integer",
        "INTEGER not null",
        "{type: integer, description: an int}",
        "int4",
        "*all",
        "int\n    m: [\n      a, # of a list\n      b]",
        'int\n    m: "\\x41"',
        "int\n    m: int\n    m: int",
    ],
    ids=["longer", "with not null", "in a mapping", "with a digit", "shared", "inner comment", "escape", "twice"],
)
def test_what_cannot_be_edited_safely_is_changed_by_hand(written):
    """`biginteger` is no type, what is shared is somebody else's too, and what is not written as it is read could be lost."""
    text = f"y: &all {{type: int}}\nz: *all\nattributes:\n  key: a/b\n  columns:\n    n: {written}\n"
    with pytest.raises(ConfigurationError, match="Write by hand: `n: bigint  # the type"):
        edited(text, "a/b", [ColumnChange("n", "int", "bigint", "", "", Action.WIDEN, "bigint")])


def test_lines_end_as_the_others_of_the_file_do():
    """As an editor of Windows leaves them: no other line is another one."""
    text = "attributes:\r\n    key: a/b\r\n    columns:\r\n        n: int # few\r\n    tags: {}\r\n"
    changes = [
        ColumnChange("n", "int", "bigint", "", "", Action.WIDEN, "bigint"),
        ColumnChange("c", "", "string", "", "", Action.ADD, "string"),
    ]
    assert edited(text, "a/b", changes) == text.replace("int # few\r\n", "bigint # few\r\n        c: string\r\n")
    whole = text.removesuffix("    tags: {}\r\n").removesuffix("\r\n")
    assert edited(whole, "a/b", changes[1:]) == whole + "\r\n        c: string"


def test_names_of_a_source_are_shown_as_they_are():
    """In brackets too, which the terminal would take for a colour, or for the end of one."""
    changes = tuple(
        ColumnChange(name, "", "string", "", "new", Action.ADD, "string") for name in ("filter[status]", "a[/b]")
    )
    console = Console(record=True, width=120)
    Proposal("a/b", changes, "defs.yaml").show(console, as_json=False)
    said = console.export_text()
    assert "filter[status]" in said
    assert "a[/b]" in said
