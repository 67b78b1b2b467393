"""A kind of source that a user's own code registers: the example of `docs/sources.md`, word for word."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import jsonschema
import pytest
import yaml

from backfill_assets import SourceSpec, lakehouse_definitions, register_source
from backfill_assets.assets.component import TableAttributes
from backfill_assets.assets.lakehouse import load_tables
from backfill_assets.core.spec.sources import kind_of, source_kinds
from backfill_assets.errors import ConfigurationError, TableSpecError
from tests.support.cash_register import block, kinds_restored

TILL_ORDERS = dg.AssetKey(["bronze", "till_orders"])


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with kinds_restored():
        yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with the page's module, the page's table, and a package that names its kind as the page says."""
    package = f"till_{abs(hash(tmp_path)):x}"  # imported once in this process, so never the same twice
    folder = tmp_path / package
    (folder / "defs/till").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "cash_register.py").write_text(block("python"))
    (folder / "defs/__init__.py").write_text("")
    (folder / "defs/till/defs.yaml").write_text(block("yaml"))
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\n'
        'registry_modules = ["backfill_assets"]\n'
    )
    installed = tmp_path / f"{package}-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    said = (
        block("toml")
        .removeprefix("[project.entry-points.")
        .replace('"backfill_assets.sources"]', "[backfill_assets.sources]")
    )
    (installed / "entry_points.txt").write_text(said.replace('"', "").replace("shop.", f"{package}."))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def load(folder: Path) -> dg.Definitions:
    return lakehouse_definitions(load_tables(folder))


def test_a_yaml_with_that_kind_loads(project: Path):
    """The table is validated by its kind's own class, described in its words, and shown to editors."""
    graph = load(project).resolve_asset_graph()
    assert "- History: the cash register's `till.db`" in str(graph.get(TILL_ORDERS).description)

    validator = jsonschema.Draft202012Validator(TableAttributes.model_json_schema())
    table = yaml.load(block("yaml"), Loader=yaml.BaseLoader)["attributes"]
    assert list(validator.iter_errors(table)) == []
    del table["source"]["path"]
    assert list(validator.iter_errors(table))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("path: till.db", "pth: till.db", "defs.yaml:11: source.pth: there is no such field; did you mean `path`?"),
        ("    path: till.db\n", "", "source.path: is required"),
        (
            "kind: cash_register", "kind: cash_registr",
            "defs.yaml:10: source.kind: there is no kind of source `cash_registr`; there are `files`, `jdbc`, `delta`, `version`, `cash_register`",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_of_any_kind(project: Path, old: str, new: str, message: str):
    """A field that the kind does not know, one that it needs, and a kind that nobody registered are named with their place."""
    file = project / "defs/till/defs.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(TableSpecError) as refused:
        load(project)
    problems: Any = refused.value.facts["problems"]
    assert any(message in problem for problem in problems), problems


# -- registering -------------------------------------------------------------------------------------------------------


class Rows(SourceSpec):
    kind: Literal["rows"] = "rows"


class OtherRows(SourceSpec):
    kind: Literal["rows"] = "rows"


class Nameless(SourceSpec):
    """It has no kind."""


def test_a_kind_is_registered_once():
    """The same class may come twice, as when its module is loaded again; another one with its name is refused."""
    register_source(Rows, print)
    register_source(Rows, print)
    with pytest.raises(ConfigurationError, match=r"`rows` is `.*\.Rows` already, and `.*\.OtherRows` wants its name"):
        register_source(OtherRows, print)
    with pytest.raises(ConfigurationError, match="`Nameless` does not say which kind of source it is"):
        register_source(Nameless, print)
    assert list(source_kinds()) == ["files", "jdbc", "delta", "version", "rows"]


def test_what_builds_a_source_may_be_named_instead_of_imported():
    """Text is looked up when a source is built; definitions that only load never import it."""
    register_source(Rows, "json:loads")
    assert kind_of(Rows()).builder() is json.loads
    with pytest.raises(ConfigurationError, match=r"`.*\.OtherRows` is no registered kind of source"):
        kind_of(OtherRows())


def test_an_entry_point_that_cannot_be_loaded_is_named(project: Path):
    """A package that names a module which is not there is told so, with the kind and the module."""
    (project / "cash_register.py").unlink()
    with pytest.raises(ConfigurationError, match="The kind of source `cash_register` cannot be loaded from `till_"):
        source_kinds()
