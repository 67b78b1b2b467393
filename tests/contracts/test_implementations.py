"""Every implementation of a port has every method of it, with the same parameters; and a contract names each."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.moments import FollowedSource
from backfill_assets.core.history.ports import Lake, Source
from backfill_assets.core.live.ports import LiveLake
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.live_table import LiveTable
from tests.contracts import sources as kinds
from tests.contracts import test_sources
from tests.support.cash_register import kinds_restored, page_module
from tests.support.fake_lake import FakeLake
from tests.support.fake_live import FakeLiveLake
from tests.support.fakes import FakeSource

PACKAGE = Path(__file__).parents[2] / "backfill_assets"


def sources() -> Iterator[type]:
    """Every class of the package that reads history, the one of docs/sources.md, and the one over lists."""
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for name in classes_below_source(file):
            yield getattr(importlib.import_module(module), name)
    with kinds_restored():
        yield page_module().CashRegister
    yield FakeSource


def classes_below_source(file: Path) -> list[str]:
    """Return the classes of a file that inherit from `Source`."""
    if "Source[" not in (text := file.read_text()):
        return []
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    return [node.name for node in found if any(ast.unparse(base).startswith("Source[") for base in node.bases)]


SOURCES = list(sources())
IMPLEMENTATIONS = [
    *((Source, source) for source in SOURCES),
    *((Lake, lake) for lake in (LakeTable, FakeLake)),
    *((LiveLake, lake) for lake in (LiveTable, FakeLiveLake)),
]


def methods(port: type) -> dict[str, inspect.Signature]:
    return {name: inspect.signature(made) for name, made in vars(port).items() if is_public_function(name, made)}


def is_public_function(name: str, made: object) -> bool:
    return inspect.isfunction(made) and not name.startswith("_")


def parameters(signature: inspect.Signature) -> list[tuple[str, Any]]:
    """Return names and kinds, in order; those that the caller need not know of are left out by `differing`."""
    return [(name, parameter.kind) for name, parameter in signature.parameters.items()]


def differing(port: type, implementation: type) -> list[str]:
    """Return in which methods an implementation takes other parameters than its port says."""
    found: list[str] = []
    for name, said in methods(port).items():
        made = getattr(implementation, name, None)
        if not inspect.isfunction(made):
            found.append(f"{name} is missing")
            continue
        own = inspect.signature(made)
        more = {n for n, p in own.parameters.items() if n not in said.parameters and p.default is not p.empty}
        taken = [(n, kind) for n, kind in parameters(own) if n not in more]
        if taken != parameters(said):
            found.append(f"{name}{own}, not {name}{said}")
        lacking = [
            n for n, p in said.parameters.items() if p.default is not p.empty and own.parameters[n].default is p.empty
        ]
        found += [f"{name}: `{n}` has no default" for n in lacking]
    return found


def test_every_implementation_is_of_a_kind_that_the_contract_knows():
    """No source of the package is in no contract: each is what one of the kinds there is built as."""
    known = {"FilesSource", "TablesSource", "VersionSource", "DatabaseSource", "ChangedSource"}
    empty = {"RetiredSource"}
    assert {source.__name__ for source in SOURCES} == {*known, *empty, "CashRegister", "FakeSource"}
    assert {make.__name__ for make in [*test_sources.SPARKS, kinds.fake]} == {
        *("parquet", "json_lines", "packed_csv", "months"),
        *("table", "version", "database", "changed", "cash_register", "fake"),
    }


@pytest.mark.parametrize("source", SOURCES)
def test_what_looks_like_a_followed_source_is_one(source):
    """A comparison tells it by the name of its method alone."""
    (name, signature), *more = methods(FollowedSource).items()
    assert not more
    assert not hasattr(source, name) or inspect.signature(getattr(source, name)) == signature


@pytest.mark.parametrize(
    ("port", "implementation"),
    IMPLEMENTATIONS,
    ids=[f"{port.__name__}-{made.__name__}" for port, made in IMPLEMENTATIONS],
)
def test_every_method_is_there_with_the_same_parameters(port: type, implementation: type):
    """What a caller may give by the port it may give to each, by the same names; more is optional."""
    assert differing(port, implementation) == []


@pytest.mark.parametrize("port", [Source, Lake, LiveLake], ids=lambda port: port.__name__)
def test_every_method_is_in_a_contract(port: type):
    """A method that no contract calls is one that the fakes may get wrong."""
    files = Path(__file__).parent.glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert methods(port).keys() - named == set()


def test_another_parameter_is_noticed():
    """One that is missing, one of another name, one without its default, and one more that has to be given."""

    class Other(FakeLake):
        earlier_tally = None

        def tally(self, partitions, *, version, unique=None):
            del partitions, version, unique

        def late(self, days):
            del days

        def fence(self, at):
            del at

    assert [line.split("(")[0] for line in differing(Lake, Other)] == [
        "fence", "late", "tally: `version` has no default", "earlier_tally is missing"
    ]  # fmt: skip
