"""Which types read as which, and the one that takes both."""

from __future__ import annotations

from itertools import product

import pytest

from backfill_assets.core.schema.types import common_type, largest_whole, plain_type, reads_as, reads_by_value
from backfill_assets.core.spec.columns import PRIMITIVE_TYPES
from tests.support.docstring_tables import table_of


@pytest.mark.parametrize("row", table_of(reads_as), ids=lambda row: f"{row['found']} as {row['wanted']}")
def test_what_reads_as_what(row):
    """Only what loses nothing is read as another type."""
    assert reads_as(row["found"], row["wanted"]) is (row[""] == "yes")


@pytest.mark.parametrize("row", table_of(reads_by_value), ids=lambda row: f"{row['found']} as {row['wanted']}")
def test_what_is_read_number_by_number(row):
    """Numbers of any type are read as another one, unless hardly any value is the same in both."""
    assert reads_by_value(row["found"], row["wanted"]) is (row[""] == "yes")


@pytest.mark.parametrize("row", table_of(largest_whole), ids=lambda row: f"{row['found']} as {row['wanted']}")
def test_up_to_which_whole_number_floating_point_is_exact(row):
    """Floating point has every whole number up to 2^53, or 2^24, and none is read beyond."""
    assert str(largest_whole(row["found"], row["wanted"])).lower() == row["largest"]


@pytest.mark.parametrize("row", table_of(common_type), ids=lambda row: f"{row['one']} and {row['other']}")
def test_the_type_that_takes_both(row):
    """The narrowest type that loses nothing, whichever comes first; none where the kinds differ."""
    assert (
        common_type(row["one"], row["other"])
        == common_type(row["other"], row["one"])
        == (None if row["both"] == "none" else row["both"])
    )


def test_whatever_two_types_share_reads_both():
    """A common type of any two types reads each of them, or is the double of float and a whole number."""
    kinds = [*PRIMITIVE_TYPES, "decimal(5,2)", "decimal(18,2)", "decimal(38,10)"]
    for one, other in product(kinds, kinds):
        both = common_type(one, other)
        assert both is None or both == "double" or (reads_as(one, both) and reads_as(other, both)), (one, other, both)


def test_a_column_without_a_type_is_like_any_other():
    """A column that never had a value has the type of the same column elsewhere; nanoseconds are those of a timestamp."""
    assert common_type("void", "decimal(18,2)") == common_type("decimal(18,2)", "void") == "decimal(18,2)"
    assert common_type("timestamp(9)", "timestamp") == "timestamp"
    assert plain_type("uint32") == "bigint"
