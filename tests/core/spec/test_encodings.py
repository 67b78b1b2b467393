"""Encodings of files: which are known by which name, and what their bytes stand for."""

from __future__ import annotations

import pytest

from backfill_assets.core.spec.encodings import KNOWN, NOTHING, upper_half
from backfill_assets.core.spec.files import FilesSpec
from tests.core.spec.specs import refusal_of


@pytest.mark.parametrize(
    ("written", "name"),
    [("latin1", "iso-8859-1"), ("ISO_8859-15", "iso-8859-15"), ("Windows-1252", "windows-1252"), ("cp1252", "windows-1252"), ("cp850", "cp850")],
)  # fmt: skip
def test_an_encoding_has_one_name(written, name):
    """Whatever name a tool gives it, it is one encoding, and one code version."""
    assert FilesSpec(path="x", format="csv", encoding=written).encoding == name


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"encoding": "latin-11"}, "there is no encoding `latin-11`; did you mean `latin1`?"),
        ({"encoding": "utf8"}, "`utf8` is what is read without it; leave it out"),
        ({"encoding": "utf-16"}, "`utf-16` is not an encoding with one byte for each character, as `latin1` and `windows-1252` are; have the files written in UTF-8"),
    ],
)  # fmt: skip
def test_an_encoding_that_cannot_be_read_is_refused(facts, message):
    """The message names it, and what may have been meant or can be done."""
    assert refusal_of(FilesSpec, **{"path": "x", "format": "csv", **facts}) == message


def test_an_encoding_is_part_of_a_spec_where_it_is_given():
    """What a spec from before there was a choice says is what it said."""
    assert "encoding" not in FilesSpec(path="x", format="csv").model_dump_json()
    assert '"encoding":"iso-8859-1"' in FilesSpec(path="x", format="csv", encoding="latin1").model_dump_json()


@pytest.mark.parametrize("name", KNOWN)
def test_each_byte_stands_for_one_character_or_none(name):
    """The lower half is ASCII, and of the upper half no two bytes stand for the same, nor one for a control character."""
    assert bytes(range(128)).decode(name) == bytes(range(128)).decode("ascii")
    letters = [letter for letter in upper_half(name) if letter != NOTHING]
    assert len(upper_half(name)) == 128
    assert len(set(letters)) == len(letters) > 40
    assert all(letter > "\x9f" for letter in letters)
