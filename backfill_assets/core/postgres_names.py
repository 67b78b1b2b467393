"""Names as PostgreSQL quotes them, and as a person types them. Pure."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = re.compile(
    "all|analyse|analyze|and|any|array|as|asc|asymmetric|both|case|cast|check|collate|column|constraint|create|"
    "current_.*|default|deferrable|desc|distinct|do|else|end|except|false|fetch|for|foreign|from|grant|group|having|in|"
    "initially|intersect|into|lateral|leading|limit|localtime|localtimestamp|not|null|offset|on|only|or|order|placing|"
    "primary|references|returning|select|session_user|some|symmetric|system_user|table|then|to|trailing|true|union|"
    "unique|user|using|variadic|when|where|window|with|"
    "authorization|binary|collation|concurrently|cross|freeze|full|ilike|inner|is|isnull|join|left|like|natural|notnull|"
    "outer|overlaps|right|similar|tablesample|verbose"
)
"""Words that are no names without quotes; from the appendix of PostgreSQL's manual."""


def identifier(name: str) -> str:
    """Return a name as PostgreSQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def as_typed(*names: str) -> str:
    """Return names with dots between them as a person types them: in quotes where they would else be another one's."""
    is_plain = (_PLAIN.fullmatch(name) and not _RESERVED.fullmatch(name) for name in names)
    return ".".join(name if plain else identifier(name) for name, plain in zip(names, is_plain, strict=True))
