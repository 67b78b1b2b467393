"""One line of JSON as it is written: what Spark would take for something else, and what it would write anew."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from backfill_assets.core.sql import quoted
from backfill_assets.sources.files.text_values import if_utf_16, not_of, preview

NO_OBJECT = "not one JSON object: "
_MOST_NESTED = 20
_TEXT = r'"(?:[^"\\]++|\\.)*+"'
_FLAT = r"^[ \t\r\n]*+\{[^{}]*+\}[ \t\r\n]*+\z"
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?=[ \t\r\n]*+[,\]}])"
_EACH_NUMBER = rf'\G((?:[^"0-9-]++|{_TEXT})*+)({_NUMBER})'
_WRITTEN_ANEW = r"[0-9][.eE]|-0"
_SPREAD = r"^[ \t\r\n]*(?:\[|\{[ \t\r\n]*\z)"
_LINES = " (is the file one array, or are its objects spread over several lines? `jq -c` writes one on each line)"
_HALF = r"\\u[dD][89a-fA-F]"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"


def misread(fields: Collection[Sequence[str]], line: str, encoding: str | None = None) -> Column:
    r"""Say why a line that is not blank must not be read; NULL where Spark's parser can be trusted with it.

    Spark reads the first value of a line, whatever follows it; of fields with one name the last; a half of a
    character as `?`; and no field whose name has other upper and lower case. A mark of UTF-8 in front of a line is no
    part of it: files were joined there.

    | id | lines |
    |----|-------|
    | 5 | "{\"id\":5}", " {\"id\" : 5 } ", "\t{\"id\":5}\t", "\ufeff{\"id\":5}", "{\"id\":\"5\"}", "{\"\\u0069d\":5}" |
    | 5 | "{\"id\":5,\"x\":1,\"x\":2}", "{\"x\":{\"id\":6,\"id\":7},\"id\":5}", "{\"x\":\"\\ud83d\\ude00\",\"id\":5}" |
    | 5 | "{\"id\":5,\"ID\":6}", "{\"id\":5,\"x\":\"}{\"}" |
    | 5 | "{\"id\":5,\"x\":\"\\\\ud800\"}", "{\"x\":[{\"a\":[]},{}],\"id\":5}" |
    | NULL | "{}", "{\"id\":null}", "{\"x\":{\"id\":5}}", "{\"x\":{\"ID\":5}}" |
    | blank | "", " ", "\t" |
    | refused | "{\"id\":5} {\"id\":6}", "{\"id\":5}{\"id\":6}", "{\"id\":5},{\"id\":6}" |
    | refused | "{\"id\":5}\ufeff{\"id\":6}", "{\"id\":5};{\"id\":6}", "{\"id\":5}\u007c{\"id\":6}" |
    | refused | "{\"id\":5}\u00a0{\"id\":6}", "{\"id\":5}]{\"id\":6}", "{\"id\":5}\u0000{\"id\":6}" |
    | refused | "{\"id\":5}//{\"id\":6}", "{\"id\":5}],[{\"id\":6}", "{\"id\":5}/*{}*/", "{\"id\":5} and more }" |
    | refused | "{\"id\":5}}", "{\"id\":5},", "{\"id\":5} \"x\":{}}", "{\"id\":5},\"x\":{\"a\":1}" |
    | refused | "{\"x\":{\"a\":1},\"id\":5} {\"id\":6}", "[{\"id\":5}]", "[]", "5", "null", "\"text\"", "\u00a0" |
    | refused | "{\"id\":5", "{\"id\":5,}", "{\"id\":}", "{id:5}", "{'id':5}", "{\"id\":5 6}", "{5:6}" |
    | refused | "{\"id\":5 // five}", "{\"id\":5,\"id\":6}", "{\"id\":5,\"\\u0069d\":6}", "{\"id\":5,\"id\":null}" |
    | refused | "{\"id\":05}", "{\"id\":+5}", "{\"id\":5.}", "{\"id\":.5}", "{\"id\":NaN}", "{\"id\":Infinity}" |
    | refused | "{\"id\":0x5}", "{\"id\":5,\"x\":\"\\ud800\"}", "{\"id\":5,\"x\":\"\\ude00\\ud83d\"}" |
    | refused | "{\"id\":5,\"x\":\"\\q\"}", "{\"id\":True}", "{\"id\":[5]}", "{\"id\":{\"a\":5}}" |
    | refused | "{\"ID\":5}", "{\"x\":1,\"Id\":5}", "{\"id\":5,\"x\":NaN}", "{\"id\":5,\"x\":\"a\tb\"}" |

    Args:
        fields: Paths of the fields that are read.
        line: Name of the column with the lines.
        encoding: In which they were written; None: UTF-8.
    """
    text = without_mark(line)
    mark = F.xxhash64(text).cast("string")  # comes right behind the line's only value, and could be in no line
    behind = F.get_json_object(F.concat(F.lit("["), text, F.lit(',"'), mark, F.lit('"]')), "$[1]")
    is_one = text.rlike(_FLAT) | (text.rlike(r"^[ \t\r\n]*\{") & F.coalesce(behind == mark, F.lit(False)))
    escapes = F.regexp_replace(F.regexp_replace(text, r"\\\\", ""), _PAIR, "")
    return F.coalesce(
        not_of(encoding, text),
        F.when(~is_one, F.concat(F.lit(NO_OBJECT), preview(text), _if_spread(text), if_utf_16(text))),
        F.concat(_wrong_name(fields, text), preview(text)),
        F.when(
            (text.contains(r"\ud") | text.contains(r"\uD")) & escapes.rlike(_HALF),
            F.concat(F.lit("a half of a character: "), preview(text)),
        ),
    )


def _if_spread(text: Column) -> Column:
    """Return what to do about the first line of a file that is one array, or of an object over several lines."""
    return F.when(text.rlike(_SPREAD), F.lit(_LINES)).otherwise(F.lit(""))


def without_mark(line: str) -> Column:
    """Return a line without the mark of UTF-8 that a file may begin with, and so a line if files were joined."""
    return F.ltrim(F.col(quoted(line)), F.lit("\ufeff"))


def numbers_as_texts(text: Column) -> Column:
    """Return a line with its numbers in quotes, because `from_json` passes them through a double."""
    return F.when(text.rlike(_WRITTEN_ANEW), F.regexp_replace(text, _EACH_NUMBER, '$1"$2"')).otherwise(text)


def as_written(text: Column, path: Sequence[str], parsed: Column) -> Column:
    """Return a field that was parsed as text; an object or an array as it stands in the line.

    NULL where that cannot be found: it is nested deeper than 20 levels, or its name has escapes.
    """
    found = text
    for name in path:
        found = F.regexp_extract(found, _field(name), 1)
    return F.when(~parsed.rlike(r"^[{\[]") | found.startswith('"'), parsed).when(found.rlike(r"^[{\[]"), found)


def _wrong_name(fields: Collection[Sequence[str]], text: Column) -> Column:
    """Say what is wrong with the names of a line's fields, at the top or in an object; NULL if nothing is."""
    names: dict[tuple[str, ...], set[str]] = {}
    for path in fields:
        for depth, name in enumerate(path):
            names.setdefault(tuple(path[:depth]), set()).add(name)
    return F.coalesce(*(_wrong_key(text, outer, sorted(inside)) for outer, inside in names.items()))


def _wrong_key(text: Column, outer: Sequence[str], names: Sequence[str]) -> Column:
    holder = F.get_json_object(text, "$" + "".join(f"['{name}']" for name in outer)) if outer else text
    lower = sorted({name.lower() for name in names})

    def why(keys: Column) -> Column:
        read = F.filter(keys, lambda key: key.isin(*names))
        may_differ = F.exists(keys, lambda key: ~key.isin(*names) & F.lower(key).isin(*lower))
        alike = F.filter(F.transform(keys, F.lower), lambda key: key.isin(*lower))
        has_other_case = F.size(F.array_except(alike, F.transform(read, F.lower))) > 0
        return F.when(F.size(read) != F.size(F.array_distinct(read)), F.lit("a field is there twice: ")).when(
            may_differ & has_other_case, F.lit("a field's name has other upper and lower case than the spec: ")
        )

    return F.transform(F.array(F.json_object_keys(holder)), why)[0]  # a list of one: so the keys are found once


def _field(name: str) -> str:
    """Return a pattern that finds a field of an object, with what it holds as its group."""
    nested = r"(?!)"
    for _ in range(_MOST_NESTED):
        nested = rf'[{{\[](?:[^{{}}\[\]"]++|{_TEXT}|{nested})*+[}}\]]'
    value = rf'(?:{_TEXT}|{nested}|[^\s",{{}}\[\]]++)'
    key = rf'"{re.escape(name)}"\s*+:\s*+'
    return rf"^\s*+\{{\s*+(?:(?!{key}){_TEXT}\s*+:\s*+{value}\s*+,\s*+)*+{key}({value})"
