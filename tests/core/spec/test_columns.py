"""Columns of a spec: short forms, types and names, and which are refused."""

from __future__ import annotations

import pytest

from backfill_assets.core.spec.columns import PRIMITIVE_TYPES, Column
from tests.core.spec.specs import refusal_of, spec


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
        ("decimal(39,2)", "`decimal(39,2)`: a decimal has 1 to 38 digits, and no more after the point than in total"),
        ("decimal(0,0)", "`decimal(0,0)`: a decimal has 1 to 38 digits, and no more after the point than in total"),
        ("decimal(5,6)", "`decimal(5,6)`: a decimal has 1 to 38 digits, and no more after the point than in total"),
    ],
)  # fmt: skip
def test_an_unknown_type_is_refused(kind, message):
    """The message names the type and the one that may have been meant, or those that there are."""
    assert refusal_of(Column.model_validate, kind) == message


@pytest.mark.parametrize("name", ["order id", "a,b", "a\nb", ""])
def test_a_column_name_that_delta_refuses_is_refused(name):
    """Names that a Delta table without column mapping cannot have are refused when the spec is read."""
    message = refusal_of(spec, columns={name: "int", "created_at": "timestamp"})
    assert message == f"`{name}`: a column name has no space and none of `,;{{}}()=`"


def test_our_own_column_names_are_refused():
    """Names under which staged rows carry our own columns are not for tables."""
    message = refusal_of(spec, columns={"_ba_file_id": "string", "created_at": "timestamp"})
    assert message == "`_ba_file_id`: names that start with `_ba_` are reserved for this project's own columns"


@pytest.mark.parametrize("name", ["_metadata", "_METADATA"])
def test_the_name_of_sparks_hidden_column_is_refused(name):
    """Spark would take it for where a row comes from, and fail in the middle of a launch."""
    message = refusal_of(spec, columns={name: "string", "created_at": "timestamp"})
    assert message == f"`{name}`: Spark keeps under this name where a row comes from; give the column another one"
    assert refusal_of(spec, partition_column=name) == message


def test_columns_that_differ_only_in_case_are_refused():
    """Delta would take them for one."""
    message = refusal_of(spec, columns={"id": "int", "ID": "int", "created_at": "timestamp"})
    assert message == "`id`, `ID` differ only in case; Delta takes them for one column"
