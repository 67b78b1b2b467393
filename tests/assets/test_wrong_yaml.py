"""A table in YAML that is wrong: what a person reads in `dg check defs`."""

from __future__ import annotations

import pytest

from backfill_assets.errors import TableSpecError
from tests.assets.projects import ORDERS, TOTALS, TRANSFORM, Project, asset_of, changed


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        pytest.param(
            "amount: decimal(18,2)", "amount: decimall(18,2)", 7,
            "columns.amount.type: there is no type `decimall(18,2)`; did you mean `decimal(18,2)`?", id="unknown type",
        ),
        pytest.param(
            "event_time: ordered_at", "event_time: order_at", 9,
            "event_time: there is no column `order_at`; did you mean `ordered_at`?", id="event time is no column",
        ),
        pytest.param("grain: daily", "grain: yearly", 10, "grain: Input should be 'hourly', 'daily', 'weekly' or 'monthly', got `yearly`", id="unknown grain"),
        pytest.param("  start: 2024-01-01\n", "", 2, "start: is required", id="missing field"),
        pytest.param("  grain: daily", "  graim: daily", 10, "graim: there is no such field; did you mean `grain`?", id="unknown field"),
        pytest.param(
            "format: parquet", "format: avro", 15, "source.format: Input should be 'parquet', 'json' or 'csv', got `avro`", id="unknown format"),
        pytest.param("kind: files", "kind: kafka", 13, "source.kind: there is no kind of source `kafka`; there are `files`, `jdbc`, `delta`, `version`", id="unknown kind"),
        pytest.param("grain: daily", "live: {path: ./orders, starts: 2024-02-01, late: keep}\n  grain: daily", 10, "live.path: the folder `./orders` is `orders`, which is `source.path` of `bronze/orders`", id="a stream of its own history"),
        pytest.param("key: bronze/orders", "key: orders", 3, "key: `orders`: a key is `layer/name`, both of small letters, digits and `_`, for example `bronze/orders`", id="key without a layer"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(project: Project, old: str, new: str, line: int, message: str):
    """A wrong table is refused with file, line, field, the value that is there and what would be right."""
    project.write("defs/orders/defs.yaml", changed(ORDERS, old, new))
    problems = project.refused()
    (found,) = [problem for problem in problems if message in problem]
    assert found.startswith(f"{project.package}/defs/orders/defs.yaml:{line}: {message}")
    assert len(problems) == (2 if "graim" in new else 1), problems  # a misspelt field is also a missing one


def test_an_unset_variable_is_named(project: Project):
    """A template whose variable is not set is refused by its name; the text `None` never takes its place."""
    template = "s3://{{ env.NO_SUCH_BUCKET }}/orders"
    project.write("defs/orders/defs.yaml", changed(ORDERS, "path: orders", f'path: "{template}"'))
    (problem,) = project.refused()
    assert problem.startswith(f"{project.package}/defs/orders/defs.yaml:14: source.path: {template}: ")
    assert "NO_SUCH_BUCKET is not set" in problem
    assert "default" in problem


def test_a_variable_may_have_a_default(project: Project):
    """A template may say what counts where its variable is not set."""
    project.write(
        "defs/orders/defs.yaml",
        changed(ORDERS, "path: orders", "path: \"{{ env('NO_SUCH_BUCKET', 'local') }}/orders\""),
    )
    assert "files below `local/orders`" in str(asset_of(project.load(), "bronze/orders").descriptions_by_key)


def test_a_wrong_value_from_a_variable_says_where_it_comes_from(project: Project, monkeypatch: pytest.MonkeyPatch):
    """A template that gives a wrong value shows both the value and the template."""
    monkeypatch.setenv("SHOP_GRAIN", "fortnightly")
    project.write("defs/orders/defs.yaml", changed(ORDERS, "grain: daily", 'grain: "{{ env.SHOP_GRAIN }}"'))
    (problem,) = project.refused()
    assert problem.endswith(
        "defs.yaml:10: grain: Input should be 'hourly', 'daily', 'weekly' or 'monthly', got `fortnightly` from {{ env.SHOP_GRAIN }}"
    )


def test_a_secret_in_the_wrong_field_is_not_shown(project: Project, monkeypatch: pytest.MonkeyPatch):
    """Of a template whose variable is called a secret, an error shows the template and not the value."""
    monkeypatch.setenv("SHOP_SECRET", "canary")
    project.write("defs/orders/defs.yaml", changed(ORDERS, "grain: daily", 'grain: "{{ env.SHOP_SECRET }}"'))
    (problem,) = project.refused()
    assert problem.endswith("got `(hidden)` from {{ env.SHOP_SECRET }}")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("  grain: daily\n", "  grain: daily\n  grain: monthly\n", 11, "grain: stands twice, in line 10 too"),
        ("attributes:\n", "type: backfill_assets.LakehouseTable\nattributes:\n", 3, "type: stands twice, in line 1 too"),
    ],
    ids=["a field", "around the table"],
)  # fmt: skip
def test_a_field_that_stands_twice(project: Project, old: str, new: str, line: int, said: str):
    """A parser would take the last of them, and whoever reads the file from its top another one."""
    project.write("defs/orders/defs.yaml", changed(ORDERS, old, new))
    (problem,) = project.refused()
    assert problem.startswith(f"{project.package}/defs/orders/defs.yaml:{line}: {said}")


DATABASE = """  source:
    kind: jdbc
    connection: SHOP_DATABASE
    table: public.orders
    complete_until: 2024-05-11
  changes: {capture: shop}
  expect:
    - {measure: count(*), within: 0.1}
    - measure: sum(amount)
      at_least: 0
      of: previous
"""


def test_useless_fields_are_named_with_their_lines(project: Project):
    """Each field without an effect has its own line, at any depth, beside what is wrong with other tables."""
    files = ORDERS[ORDERS.index("  source:") :]
    project.write("defs/orders/defs.yaml", changed(ORDERS, files, DATABASE))
    totals = changed(TOTALS, "grain: daily", "grain: daily\n  chunk: {max_source_bytes: 1000}")
    project.write("defs/totals/defs.yaml", changed(totals, "day: date", "day: {type: date, nullable: true}"))
    project.write("defs/totals/transform.py", TRANSFORM)
    assert [problem.removeprefix(f"{project.package}/defs/") for problem in project.refused()] == [
        "orders/defs.yaml:16: source.complete_until: has no effect with `changes`: the feed brings every row up to now; "
        "leave it out, or leave out `changes`",
        "orders/defs.yaml:22: expect.1.of: has no effect without `within`, which compares with it; add `within`, or leave it out",
        "totals/defs.yaml:5: columns.day.nullable: has no effect as `true` on a key column or the event time, where NULL is "
        "always refused; leave it out, or say `false`",
        "totals/defs.yaml:9: chunk.max_source_bytes: has no effect with `changes`, or with `source.kind: delta`: neither knows "
        "the size of a partition; leave it out; `max_partitions` bounds any chunk",
    ]


def test_two_tables_in_one_path(project: Project):
    """Two files with the same key are refused, and each names the other."""
    project.write("defs/a/defs.yaml", ORDERS)
    project.write("defs/b/defs.yaml", ORDERS)
    (problem,) = project.refused()
    assert problem == (
        f"{project.package}/defs/b/defs.yaml:3: key: `bronze/orders` is two tables in one path; "
        f"see {project.package}/defs/a/defs.yaml:3: key: the other one"
    )


def test_an_input_that_does_not_exist(project: Project):
    """A table made of one that is not there names it, and the one that may have been meant."""
    project.write("defs/orders/defs.yaml", ORDERS)
    project.write("defs/totals/defs.yaml", changed(TOTALS, "[bronze/orders]", "[bronze/order]"))
    project.write("defs/totals/transform.py", TRANSFORM)
    (problem,) = project.refused()
    assert (
        problem
        == f"{project.package}/defs/totals/defs.yaml:10: source: there is no table `bronze/order`; did you mean `bronze/orders`?"
    )


def test_an_input_in_another_zone(project: Project):
    """A table cannot be made of one whose days are of another time zone."""
    project.write("defs/orders/defs.yaml", changed(ORDERS, "grain: daily", "grain: daily\n  time_zone: Europe/Berlin"))
    project.write("defs/totals/defs.yaml", TOTALS)
    project.write("defs/totals/transform.py", TRANSFORM)
    (problem,) = project.refused()
    assert "time_zone: `UTC`, but `bronze/orders` has `Europe/Berlin`" in problem


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        pytest.param(".transform.total", "source.transform: `.transform.total`: `{package}.defs.totals.transform` defines no function `total`; it has totals", id="no such function"),
        pytest.param(".transfrom.totals", "source.transform: `.transfrom.totals`: there is no module `{package}.defs.totals.transfrom`", id="no such module"),
    ],
)  # fmt: skip
def test_a_transform_that_does_not_exist(project: Project, transform: str, message: str):
    """A transform that cannot be found is named with the module that was searched, without importing it."""
    project.write("defs/orders/defs.yaml", ORDERS)
    project.write("defs/totals/defs.yaml", changed(TOTALS, ".transform.totals", transform))
    project.write("defs/totals/transform.py", TRANSFORM)
    (problem,) = project.refused()
    assert problem == f"{project.package}/defs/totals/defs.yaml:13: {message.format(package=project.package)}"


def test_a_transform_that_is_no_python(project: Project):
    """The line of the transform is named, and what is wrong with other tables is told too."""
    project.write("defs/orders/defs.yaml", changed(ORDERS, "grain: daily", "grain: yearly"))
    project.write("defs/totals/defs.yaml", TOTALS)
    project.write("defs/totals/transform.py", "# größer\n" + TRANSFORM.replace("(orders):", "(orders:"))
    problems = project.refused()
    assert len(problems) == 2
    (said,) = [problem for problem in problems if "transform" in problem]
    assert f"{project.package}/defs/totals/transform.py, line " in said
    assert "is no Python: '(' was never closed" in said


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        pytest.param(TOTALS, "[bronze/orders]", "[{table: bronze/orders, startoffset: -1}]", "source.tables.0.startoffset: there is no such field; did you mean `start_offset`?", id="of an input"),
        pytest.param(ORDERS, "grain: daily", "changes: {captur: shop}\n  grain: daily", "changes.captur: there is no such field; did you mean `capture`?", id="of changes"),
    ],
)  # fmt: skip
def test_a_misspelt_field_further_down(project: Project, table: str, old: str, new: str, said: str):
    """The field that may have been meant is named, however deep."""
    project.write("defs/one/defs.yaml", changed(table, old, new))
    assert any(said in problem for problem in project.refused()), project.refused()


def test_all_wrong_tables_are_reported_at_once(project: Project):
    """Everything that is wrong with any table comes in one message, so that nobody corrects them one by one."""
    project.write(
        "defs/a/defs.yaml",
        changed(ORDERS, "event_time: ordered_at", "event_time: ordered").replace("start: 2024-01-01", "start: 2024"),
    )
    project.write("defs/b/defs.yaml", changed(ORDERS, "bronze/orders", "bronze/b").replace("kind: files", "kind: file"))
    project.write("defs/c/defs.yaml", changed(ORDERS, "bronze/orders", "bronze/c"))
    problems = project.refused()
    assert {problem.split("/")[2] for problem in problems} == {"a", "b"}
    assert all(":" in problem for problem in problems)


def test_the_message_is_all_that_is_shown(project: Project):
    """The loader's error has no chain of components and stacks in front of what a person needs."""
    project.write("defs/orders/defs.yaml", changed(ORDERS, "grain: daily", "grain: yearly"))
    with pytest.raises(TableSpecError) as refused:
        project.load()
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
