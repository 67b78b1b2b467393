"""A table in YAML: what it becomes, and that the same table in Python becomes the same."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
import yaml

from backfill_assets import LakehouseTable, TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.errors import TableSpecError
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from tests.assets.projects import ORDERS, TOTALS, TRANSFORM, Project, asset_of, changed
from tests.support.shop import orders_spec


@pytest.mark.parametrize(("grain", "starts"), [("daily", ("01-01", "05-03")), ("weekly", ("01-01", "01-08", "05-06"))])
def test_tables_with_other_starts_share_partitions(grain: str, starts: tuple[str, ...]):
    """One run of Dagster takes tables whose definitions are equal, and so do their checks."""
    specs = [orders_spec(key=f"bronze/t{n}", grain=grain, start=f"2024-{day}") for n, day in enumerate(starts)]
    joined = lakehouse_definitions(*(build_lakehouse_table(spec) for spec in reversed(specs)))
    graph = joined.resolve_asset_graph()
    keys = [dg.AssetKey(spec.key.split("/")) for spec in specs]
    shared = {graph.get(key).partitions_def for key in keys}
    shared |= {graph.get(dg.AssetCheckKey(key, "reconciled")).partitions_def for key in keys}
    (definition,) = shared
    assert definition is not None
    assert definition.get_first_partition_key() == "2024-01-01"
    every = joined.resolve_implicit_global_asset_job_def()
    assert every.get_subset(asset_selection=frozenset(keys)).partitions_def == definition


@pytest.mark.parametrize(("first", "second"), [("", "shop"), ("shop", "shop_branch")])
def test_two_projects_share_one_dagster(first: str, second: str):
    """Of what each project has once, no asset, check, job, schedule or sensor has the name of the other project's."""
    names = list[set[str]]()
    for project in (first, second):
        table = build_lakehouse_table(orders_spec(key=f"bronze/{project or 'none'}"))
        found = lakehouse_definitions(table, lakehouse=Lakehouse(project=project)).get_repository_def()
        keys = {str(key) for key in (*found.asset_graph.get_all_asset_keys(), *found.asset_graph.asset_check_keys)}
        jobs = {job.name for job in found.get_all_jobs() if not job.name.startswith("__")}
        names.append(keys | jobs | {one.name for one in (*found.schedule_defs, *found.sensor_defs)})
    assert names[0] & names[1] == set()


def test_a_projects_name_is_checked():
    """The name becomes a part of names in Dagster, which have letters, digits and underscores."""
    with pytest.raises(ValueError, match="project"):
        Lakehouse(project="my shop")


def test_values_come_from_the_environment(project: Project, monkeypatch: pytest.MonkeyPatch):
    """A template is filled in from the environment; a text that looks like a number stays a text."""
    monkeypatch.setenv("SHOP_EXPORT", "2023")
    project.write("defs/orders/defs.yaml", changed(ORDERS, "path: orders", 'path: "{{ env.SHOP_EXPORT }}"'))
    assert "files below `2023`" in str(asset_of(project.load(), "bronze/orders").descriptions_by_key)


def test_a_transform_is_not_imported_while_definitions_load(project: Project):
    """Loading reads a transform's text and does not run it: it would import Spark."""
    project.write("defs/orders/defs.yaml", ORDERS)
    project.write("defs/totals/defs.yaml", TOTALS)
    project.write("defs/totals/transform.py", 'raise AssertionError("was run")\n\n\ndef totals(orders): ...\n')
    assert asset_of(project.load(), "silver/totals")


def test_python_and_yaml_give_the_same(project: Project):
    """`build_lakehouse_table` gives the assets, checks, jobs and code versions that the same table in YAML gives."""
    project.write("defs/orders/defs.yaml", ORDERS)
    in_yaml = lakehouse_definitions(project.load())
    in_python = lakehouse_definitions(
        build_lakehouse_table(TableSpec.model_validate(yaml.safe_load(ORDERS)["attributes"]))
    )
    assert shown(in_python) == shown(in_yaml)


def test_python_and_yaml_give_the_same_for_a_derived_table(project: Project):
    """The same holds for a table made of another: same keys, same dependency, same partition mapping."""
    project.write("defs/orders/defs.yaml", ORDERS)
    project.write("defs/totals/defs.yaml", TOTALS)
    project.write("defs/totals/transform.py", TRANSFORM)
    in_yaml = lakehouse_definitions(project.load())
    orders, totals = (TableSpec.model_validate(yaml.safe_load(text)["attributes"]) for text in (ORDERS, TOTALS))
    in_python = lakehouse_definitions(
        build_lakehouse_table(orders), build_lakehouse_table(totals, a_transform, inputs={orders.key: orders})
    )
    ours, theirs = shown(in_python), shown(in_yaml)
    for name in ("assets", "checks", "jobs", "deps"):
        assert ours[name] == theirs[name], name


def test_a_changed_transform_changes_the_code_version(project: Project):
    """Another text of the transform's module is another code version; the same text is the same one."""
    versions = []
    for transform in (TRANSFORM, TRANSFORM, TRANSFORM.replace("count(", "sum(")):
        project.write("defs/orders/defs.yaml", ORDERS)
        project.write("defs/totals/defs.yaml", TOTALS)
        project.write("defs/totals/transform.py", transform)
        versions.append(code_version(project.load(), "silver/totals"))
    assert versions[0] == versions[1] != versions[2]


def test_what_decides_the_rows_decides_the_code_version():
    """A changed source is another code version; words for people are not."""
    attributes = yaml.safe_load(ORDERS)["attributes"]

    def version(**changes: Any) -> str | None:
        spec = TableSpec.model_validate({**attributes, **changes})
        return code_version(build_lakehouse_table(spec), "bronze/orders")

    assert version() == version(description="Orders.", owners=["team:orders"], tags={"a": "b"})
    assert version() != version(source={**attributes["source"], "layout": "hive"})
    assert version() != version(latest_wins_by=["ordered_at"])


def test_what_decides_no_row_does_not_decide_the_code_version():
    """Where files lie, until when they are complete, and one call for a chunk change nothing; a call for each does."""
    days = "tables: [{table: bronze/orders, start_offset: -1}]"
    files = version_of(ORDERS)
    assert version_of(changed(ORDERS, "path: orders", "path: orders\n    complete_until: 2024-02-01")) == files
    assert version_of(changed(ORDERS, "path: orders", "path: s3a://bucket/landing/orders")) == files
    one_call, looking_back = version_of(TOTALS), version_of(changed(TOTALS, "tables: [bronze/orders]", days))
    by_partition = version_of(changed(TOTALS, "kind: delta", "kind: delta\n    transform_by: partition"))
    assert version_of(changed(TOTALS, "kind: delta", "kind: delta\n    transform_by: chunk")) == one_call
    assert len({one_call, looking_back, by_partition}) == 3


@pytest.mark.parametrize(
    ("code", "changes", "warned"),
    [("", False, True), ("\n    code: [{module}]", True, False), ("\n    code_version: '2'", False, False)],
)
def test_listed_module_changes_the_code_version(project: Project, code: str, changes: bool, warned: bool):
    """A module that `source.code` lists is code of the table; one that it lacks is not, and a warning names it."""
    versions, said = [], list[bool]()
    for number in (1, 2):
        project.write("defs/orders/defs.yaml", ORDERS)
        listed = code.format(module=f"{project.package}.defs.totals.money")
        project.write("defs/totals/defs.yaml", changed(TOTALS, "kind: delta", f"kind: delta{listed}"))
        project.write("defs/totals/transform.py", f"from .money import EUR\n{TRANSFORM}")
        project.write("defs/totals/money.py", f"EUR = {number}\n")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            versions.append(code_version(project.load(), "silver/totals"))
        said.append(any("defs.totals.money`, which `source.code` does not list" in str(one.message) for one in caught))
    assert (versions[0] != versions[1], said) == (changes, [warned, warned])


def test_code_that_is_no_module_is_refused(project: Project):
    """The name in `source.code` is told with its line."""
    project.write("defs/orders/defs.yaml", ORDERS)
    project.write("defs/totals/defs.yaml", changed(TOTALS, "kind: delta", "kind: delta\n    code: [nowhere.at_all]"))
    project.write("defs/totals/transform.py", TRANSFORM)
    with pytest.raises(TableSpecError, match=r"source\.code\.0: there is no module `nowhere\.at_all`"):
        project.load()


def test_a_changed_function_changes_the_code_version():
    """In Python the function's name and the text of its module count; an object without a text is refused."""
    orders, totals = (TableSpec.model_validate(yaml.safe_load(text)["attributes"]) for text in (ORDERS, TOTALS))

    def version(transform: Callable[..., Any]) -> str | None:
        return code_version(build_lakehouse_table(totals, transform, inputs={orders.key: orders}), "silver/totals")

    assert version(a_transform) == version(a_transform) != version(another_transform)
    with pytest.raises(TableSpecError, match=r"has no file with its text.*source\.code_version"):
        version(functools.partial(a_transform, rate=2))
    totals = totals.model_copy(update={"source": totals.source.model_copy(update={"code_version": "2"})})
    assert version(functools.partial(a_transform, rate=2))


def test_the_schema_shown_to_editors_knows_the_fields():
    """The schema that `dg check yaml` applies has every field of a table, and takes a template for any of them.

    Dagster puts it below `attributes` of another schema, where no `$ref` would find its part.
    """
    model = LakehouseTable.get_model_cls()
    assert model is not None
    schema = model.model_json_schema()
    assert set(schema["properties"]) == set(TableSpec.model_fields)
    assert {"type": "string", "pattern": r"\{\{"} in schema["properties"]["grain"]["anyOf"]
    assert "$ref" not in str(schema)


def version_of(text: str, transform: str = "") -> str:
    """The code version of a table in YAML, with the text of its transform."""
    spec = TableSpec.model_validate(yaml.safe_load(text)["attributes"])
    return Table(spec, transform_source=transform).code_version


def a_transform(orders: Any) -> Any:
    return orders


def another_transform(orders: Any) -> Any:
    return orders.limit(1)


def code_version(definitions: dg.Definitions, key: str) -> str | None:
    return asset_of(definitions, key).code_versions_by_key[dg.AssetKey(key.split("/"))]


def shown(definitions: dg.Definitions) -> dict[str, Any]:
    """What Dagster shows of definitions."""
    graph = definitions.resolve_asset_graph()
    nodes = [graph.get(key) for key in sorted(graph.get_all_asset_keys())]
    return {
        "assets": [node.key for node in nodes],
        "deps": {
            node.key: [(dep, str(node.partition_mappings.get(dep))) for dep in sorted(node.parent_keys)]
            for node in nodes
        },
        "checks": sorted(graph.asset_check_keys),
        "jobs": sorted(job.name for job in definitions.resolve_all_job_defs()),
        "versions": {node.key: node.code_version for node in nodes},
        "described": {
            node.key: (node.description, node.group_name, node.tags, node.kinds, node.owners) for node in nodes
        },
        "partitions": {node.key: node.partitions_def for node in nodes},
        "metadata": {node.key: dict(node.metadata).get("dagster/column_schema") for node in nodes},
    }
