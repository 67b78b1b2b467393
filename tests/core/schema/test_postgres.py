"""Which of PostgreSQL's types can be which of the lakehouse's."""

from __future__ import annotations

import pytest

from backfill_assets.core.postgres_names import as_typed
from backfill_assets.core.schema.postgres import DatabaseColumn, misfits, observed, shared_keys
from backfill_assets.core.spec.columns import Column


def said(base: str, declared: str, kind: str, *, zone_is_known: bool = False) -> str:
    have = {"it": DatabaseColumn("it", base, declared)}
    return "; ".join(misfits({"it": Column(type=kind)}, have, zone_is_known=zone_is_known))


@pytest.mark.parametrize(
    ("base", "declared", "kind", "what"),
    [
        ("_int4", "integer[]", "string", "`it` is `integer[]`, which is not read"),
        ("interval", "interval", "string", "is not read"),
        ("int8", "bigint", "int", "can be `bigint` here and is `int`"),
        ("int2", "smallint", "int", ""),
        ("int4", "integer", "smallint", "can be `int` or `bigint` here"),
        ("float8", "double precision", "float", "can be `double` here"),
        ("numeric", "numeric(12,2)", "double", "can be `decimal(12,2)` or `string` here"),
        ("numeric", "numeric", "decimal(38,9)", ""),
        ("text", "text", "bigint", "can be `string` here"),
        ("timestamp", "timestamp without time zone", "timestamp", "say in `source.timestamps_without_zone`"),
        ("bytea", "bytea", "string", "can be `binary` here"),
    ],
)
def test_a_type_is_read_into_what_holds_all_of_its_values(base, declared, kind, what):
    """As wide or wider, exact or by a check of each value; everything else says what it could be."""
    assert (what in said(base, declared, kind)) if what else (said(base, declared, kind) == "")


@pytest.mark.parametrize(
    ("base", "category", "instead"),
    [
        ("money", "N", '"It"::numeric'),
        ("interval", "T", 'extract(epoch FROM "It")'),
        ("_int4", "A", 'to_jsonb("It")'),
        ("point", "G", '"It"::text'),
    ],
)
def test_advice_for_an_unread_type_keeps_its_value(base, category, instead):
    """A number stays a number, and what consists of several values stays apart."""
    have = {"It": DatabaseColumn("It", base, base, category=category)}
    (what,) = misfits({"It": Column(type="string")}, have, zone_is_known=False)
    assert what.endswith(f"leave it out, or give the table a column that has `{instead}`")


def test_a_zone_lets_local_times_be_instants():
    """With it they are read; without it nobody guesses."""
    assert said("timestamp", "timestamp without time zone", "timestamp", zone_is_known=True) == ""


def test_a_missing_column_may_be_optional():
    """Then it is NULL; else it is named."""
    columns = {"a": Column(type="int"), "b": Column(type="int", optional=True), "id": Column(type="int")}
    assert list(misfits(columns, {}, zone_is_known=False, required=["id"])) == [
        "it has no column `a`; `optional: true` would read it as NULL",
        "it has no column `id`",
    ]


def test_what_is_proposed():
    """The spec's own type where it fits, else the nearest; digits as declared; an enum and a text are strings."""
    have = [
        DatabaseColumn("id", "int4", "integer"),
        DatabaseColumn("price", "numeric", "numeric(12,2)"),
        DatabaseColumn("open", "numeric", "numeric"),
        DatabaseColumn("mood", "mood", "mood", category="E"),
        DatabaseColumn("list", "_int4", "integer[]"),
    ]
    assert observed({"id": Column(type="bigint")}, have) == {
        "id": "bigint", "price": "decimal(12,2)", "open": "decimal(38,18)", "mood": "string", "list": "integer[]"
    }  # fmt: skip


def test_what_a_person_is_to_type_means_the_table():
    """Letters that PostgreSQL would make small, words of its own, quotes: else it would be another table's, or none's."""
    assert as_typed("public", "orders") == "public.orders"
    assert as_typed("public", "Orders") == 'public."Orders"'
    assert as_typed("order", 'a"b') == '"order"."a""b"'
    assert as_typed("left") == '"left"'
    assert as_typed("naïve") == '"naïve"'
    what, remedy = shared_keys(["Id", "user"], as_typed("public", "Orders"), []) or ("", "")
    assert "(Id, user)" in what
    assert remedy == (
        '`CREATE UNIQUE INDEX ON public."Orders" ("Id", "user");`, unless there is one, and '
        '`ALTER TABLE public."Orders" ALTER "Id" SET NOT NULL, ALTER "user" SET NOT NULL;`.'
    )
