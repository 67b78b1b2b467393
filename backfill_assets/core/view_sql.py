"""Statements that make views, for a catalog of Spark's or of DuckDB's: of current versions, and of a feed's changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import table_at, text_literal

Dialect = Literal["spark", "duckdb"]

_DUCKDBS_NAMES = {"string": "varchar", "int": "integer", "float": "real", "binary": "blob", "timestamp": "timestamptz"}
_DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"


def statements(queries: Mapping[str, str], dialect: Dialect, remarks: Sequence[str] = ()) -> str:
    """Return the statements that make a view of each query; of DuckDB's, all in one transaction.

    Args:
        queries: By the name of the view, `layer/name`.
        remarks: Printed as comments.
    """
    layers = sorted({name.partition("/")[0] for name in queries})
    lines = [f"-- {remark}" for remark in remarks]
    lines += [f"CREATE SCHEMA IF NOT EXISTS {_named(layer, dialect)};" for layer in layers]
    for name, query in queries.items():
        layer, _, table = name.partition("/")
        lines.append(f"CREATE OR REPLACE VIEW {_named(layer, dialect)}.{_named(table, dialect)} AS {query};")
    if dialect == "duckdb":
        lines = ["INSTALL delta; LOAD delta;", "BEGIN TRANSACTION;", *lines, "COMMIT;"]
    return "\n".join(lines)


def rows_at(path: str, dialect: Dialect) -> str:
    """Return a query for all rows of a Delta table."""
    return f"SELECT * FROM {_table_at(path, dialect)}"


def rows_from_changes(path: str, spec: TableSpec, began: int, dialect: Dialect) -> str:
    """Return a query for the rows that changes leave, by the rules of `live.changes.fold`.

    A value that its column's type cannot hold is NULL.

    Args:
        path: Of the table of changes.
        began: Position from which on the feed has every change; those before it are an older feed's.
    """
    texts = {column: f"kept[{_text(column, dialect)}]" for column in spec.columns}
    keys = ", ".join(texts[column] for column in spec.key_columns)
    zone = getattr(spec.source, "timestamps_without_zone", None)
    typed = ", ".join(
        f"{_typed(texts[column], of.type, zone, dialect)} AS {_named(column, dialect)}"
        for column, of in spec.columns.items()
    )
    one = f"PARTITION BY {keys}, after_position"
    return f"""
WITH changes AS (
  {rows_at(path, dialect)} WHERE after_position >= {began:d}
), standing AS (
  SELECT * FROM changes c WHERE op <> 't' AND NOT EXISTS (
    SELECT 1 FROM changes t WHERE t.op = 't'
    AND (t.after_position > c.after_position OR (t.after_position = c.after_position AND t.number > c.number)))
), effects AS (
  SELECT before AS kept, after_position, number, -1 AS step FROM standing WHERE op IN ('u', 'd')
  UNION ALL SELECT after AS kept, after_position, number, 1 AS step FROM standing WHERE op IN ('c', 'u')
), counted AS (
  SELECT *, sum(step) OVER ({one}, {", ".join(texts.values())}) AS remains FROM effects
), told AS (
  SELECT *, CASE WHEN step < 0 AND max(abs(remains)) OVER ({one}) = 0
    AND row_number() OVER ({one} ORDER BY number, step) = 1 THEN 1 ELSE remains END AS stays FROM counted
), newest AS (
  SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY after_position DESC, stays DESC) AS place
  FROM told WHERE stays <> 0
)
SELECT {typed} FROM newest WHERE place = 1 AND stays > 0"""


def _typed(text: str, kind: str, zone: str | None, dialect: Dialect) -> str:
    """Return a text of the database's as a value of a type."""
    is_spark, matches = dialect == "spark", "rlike" if dialect == "spark" else "regexp_matches"
    base, digits = kind.partition("(")[0], re.findall(r"\d+", kind)
    of_type = f"try_cast({text} AS {kind if is_spark else _DUCKDBS_NAMES.get(kind, kind)})"
    if kind == "string":
        return text
    if kind == "boolean":
        return f"CASE WHEN {text} IN ('t', 'true') THEN true WHEN {text} IN ('f', 'false') THEN false END"
    if kind == "binary":
        is_hex = f"substring({text}, 1, 2) = {_text(chr(92) + 'x', dialect)}"
        decoded = f"unbase64({text})" if is_spark else f"from_base64({text})"
        return f"CASE WHEN {is_hex} THEN unhex(substring({text}, 3)) ELSE {decoded} END"
    if kind == "date":
        return f"CASE WHEN {matches}({text}, '{_DAY}$') THEN {of_type} END"
    if kind == "timestamp":
        local = (
            f"try_cast(concat({text}, {_text(f' {zone}', dialect)}) AS timestamp)"
            if is_spark
            else f"timezone({_text(str(zone), dialect)}, try_cast({text} AS timestamp))"
        )
        with_zone = f"WHEN {matches}({text}, '{_DAY}[T ][0-9:.]+(Z|[+-][0-9:]+)$') THEN {of_type}"
        without = f" WHEN {matches}({text}, '{_DAY}[T ][0-9:.]+$') THEN {local}" if zone else ""
        return f"CASE {with_zone}{without} END"
    if base == "decimal":
        whole, scale = int(digits[0]) - int(digits[1]), int(digits[1])
        form = f"^-?[0-9]{{1,{max(whole, 1)}}}([.][0-9]{{0,{scale}}}0*)?$"
        return f"CASE WHEN {matches}({text}, '{form}') THEN {of_type} END"
    return of_type


def _table_at(path: str, dialect: Dialect) -> str:
    return table_at(path) if dialect == "spark" else f"delta_scan({_text(path, dialect)})"


def _named(name: str, dialect: Dialect) -> str:
    mark = "`" if dialect == "spark" else '"'
    return f"{mark}{name.replace(mark, 2 * mark)}{mark}"


def _text(text: str, dialect: Dialect) -> str:
    return text_literal(text) if dialect == "spark" else "'" + text.replace("'", "''") + "'"
