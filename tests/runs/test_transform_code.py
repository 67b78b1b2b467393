"""The code of a transform: what changes it, and what does not."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backfill_assets.errors import TableSpecError
from backfill_assets.runs.transform_code import code_of_function, code_of_module

FILES = {
    "shop/__init__.py": "",
    "shop/defs/sales/transform.py": (
        "import json\nfrom shop import money\nfrom ...common.days import first as of\n\n\ndef sales(rows): ...\n"
    ),
    "shop/money/__init__.py": "from shop.money.rates import EUR\n",
    "shop/money/rates.py": "EUR = 1\n",
    "shop/common/days.py": "from . import clocks\n\n\ndef first(day): ...\n",
    "shop/common/clocks.py": "ZONE = 'UTC'\n",
    "shop/unused.py": "",
    "json/__init__.py": "",
    "shop/tables.py": (
        "import shop.common.days\nfrom shop.money.rates import EUR\nfrom shop import unused\n\nRATE = 2\nOTHER = 3\n\n\n"
        "def cents(amount):\n    return amount * EUR\n\n\ndef sales(rows):\n    return rows, cents(RATE), shop.common.days\n"
    ),
}


def write(root: Path, **changes: str) -> Path:
    for path, text in {**FILES, **changes}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def in_yaml(root: Path) -> str:
    return code_of_module("shop.defs.sales.transform", root / "shop/defs/sales/transform.py")


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("shop/defs/sales/transform.py", True),
        ("shop/money/__init__.py", True),
        ("shop/money/rates.py", True),
        ("shop/common/days.py", True),
        ("shop/common/clocks.py", True),
        ("shop/unused.py", False),
        ("shop/__init__.py", False),
    ],
)
def test_what_a_transform_imports_of_its_project_is_its_code(tmp_path, path, counts):
    """At any depth, by any form of import, and wherever the project lies; nothing is run, and nothing else counts."""
    before = in_yaml(write(tmp_path / "one"))
    assert before == in_yaml(write(tmp_path / "another"))
    changed = in_yaml(write(tmp_path / "one", **{path: FILES[path] + "raise AssertionError\n"}))
    assert (changed != before) is counts


def test_libraries_beside_a_project_are_not_its_code(tmp_path):
    """A project that is installed lies among libraries; the text is the one that it has in a folder of its own."""
    installed = in_yaml(write(tmp_path / "site-packages", **{"json/__init__.py": "other = 1\n"}))
    assert installed == in_yaml(write(tmp_path / "one", **{"json/__init__.py": ""})).replace("\n# json\n", "")


def test_a_transform_alone_is_its_text(tmp_path):
    """Without anything of its project its code is its own text, as it was when only that counted."""
    text = "from pyspark.sql import functions as F\n\n\ndef sales(rows): ...\n"
    assert in_yaml(write(tmp_path, **{"shop/defs/sales/transform.py": text})) == text


@pytest.fixture
def in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """The code of `shop.tables.sales`, a function, in a project of its own."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    number = iter(range(99))

    def code(**changes: str) -> str:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(write(tmp_path / str(next(number)), **changes)))
            importlib.invalidate_caches()
            return code_of_function(importlib.import_module("shop.tables").sales)

    yield code
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_what_a_function_uses_is_its_code(in_python):
    """Functions and values of its module that it uses, what these use, and modules of the project; not what is beside them."""
    tables = FILES["shop/tables.py"]
    before = in_python()
    assert in_python() == before
    for old, new in (("RATE = 2", "RATE = 4"), ("amount * EUR", "amount + EUR"), ("rows, cents", "cents")):
        assert in_python(**{"shop/tables.py": tables.replace(old, new)}) != before, old
    for path in ("shop/money/rates.py", "shop/common/clocks.py"):
        assert in_python(**{path: FILES[path] + "MORE = 1\n"}) != before, path
    for path, text in (("shop/tables.py", tables.replace("OTHER = 3", "OTHER = 4")), ("shop/unused.py", "MORE = 1\n")):
        assert in_python(**{path: text}) == before, path


BEHIND = """\
from shop.money.rates import EUR

VAT, OTHER, ROUNDED = 2, 3, 4
FACTOR = EUR + VAT


class Rounding:
    digits = ROUNDED


def taxed(make):
    return lambda rows: (make(rows), 5)


class Sales:
    def __call__(self, rows):
        return self.made(rows, Rounding)

    def made(self, rows, rounding):
        return rows, rounding, 6


@taxed
def sales(rows, factor=FACTOR):
    return rows, factor, Sales()
"""


def test_what_values_defaults_and_decorators_are_made_of_is_its_code(in_python):
    """A number behind a number is as good as one in the function's body; what nothing of this reads is not."""
    before = in_python(**{"shop/tables.py": BEHIND})
    for old, new in (
        ("VAT, OTHER, ROUNDED = 2", "VAT, OTHER, ROUNDED = 3"),
        ("rows), 5", "rows), 6"),
        ("g, 6", "g, 7"),
    ):
        assert in_python(**{"shop/tables.py": BEHIND.replace(old, new)}) != before, old
    assert in_python(**{"shop/tables.py": BEHIND, "shop/money/rates.py": "EUR = 2\n"}) != before
    apart = BEHIND.replace("VAT, OTHER, ROUNDED = 2, 3, 4", "VAT, ROUNDED = 2, 4\nOTHER = 3")
    assert in_python(**{"shop/tables.py": apart}) == in_python(**{"shop/tables.py": apart.replace("R = 3", "R = 4")})


class Scaled:
    """A transform that is an object."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, rows):
        return self.made(rows)

    def made(self, rows):
        return rows, self.rate


def test_methods_of_a_transform_that_is_an_object_are_its_code():
    """What it calls of itself counts as what is bound to it."""
    text = code_of_function(Scaled(1))
    assert "return rows, self.rate" in text
    assert text != code_of_function(Scaled(2))


def scaled(rows, rate=1):
    return rows, rate


def test_what_is_bound_to_a_function_is_its_code():
    """Arguments of a `partial` and what a function closes over; in one text for equal values."""

    def made(rate):
        return lambda rows: (rows, rate)

    def recursive(n):
        return recursive(n - 1) if n else 0

    one, two = functools.partial(scaled, rate=1), functools.partial(scaled, rate={"b", "a"})
    assert len({code_of_function(f) for f in (scaled, one, two, made(1), made(2))}) == 5
    assert code_of_function(two) == code_of_function(functools.partial(scaled, rate={"a", "b"}))
    assert code_of_function(functools.partial(one, [made(1)])) != code_of_function(functools.partial(one, [made(2)]))
    assert "n - 1" in code_of_function(recursive)
    assert code_of_function(None) == ""


def test_what_cannot_be_written_down_is_refused():
    """An object without a text of its own, bound to a transform: a change of it would not be seen."""
    with pytest.raises(
        TableSpecError, match="A transform has a `builtins.object` bound to it, and what that is cannot"
    ):
        code_of_function(functools.partial(scaled, rate=object()))
