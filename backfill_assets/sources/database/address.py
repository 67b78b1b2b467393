"""The address of a database, as an environment variable holds it: nothing of it is shown, whatever is wrong with it."""

from __future__ import annotations

import os
import re
from typing import Any

from backfill_assets.core.spec.source_spec import refuse_unset
from backfill_assets.errors import ConfigurationError


def psycopg_for(about: str) -> Any:
    """Return PostgreSQL's client, which is imported where it is needed.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError(
            f"`{about}`: its source is a database, and the package `psycopg` is not installed.",
            state="Nothing was read.",
            remedy="Install it: `pip install 'backfill-assets[databases]'`.",
        ) from error
    return psycopg


def parts_of_address(variable: str, about: str) -> dict[str, Any]:
    """Return the parts of the address that a variable holds.

    A letter of a password that is not escaped may cut the address elsewhere: the rest of the password would be taken
    for the host or the port, asked for in the network, and named in a message.

    Raises:
        AddressMissingError: There is no such variable.
        ConfigurationError: What it holds is no address.
    """
    address = os.environ.get(variable, "").strip()
    refuse_unset(about, [variable], os.environ)
    psycopg = psycopg_for(about)
    try:
        given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(address)
        is_cut = re.match(r"postgres(ql)?://([^?]*@|[^/?@]*/)[^?]*@", address) or "@" in str(given.get("host") or "")
    except psycopg.ProgrammingError:
        given, is_cut = {}, True
    if is_cut or re.search(r"[^\d,]", str(given.get("port") or "")):
        raise ConfigurationError(
            f"`{about}`: what the environment variable `{variable}` holds is no address of a database.",
            state="Nothing was read.",
            remedy="Write it as `postgresql://user@host:port/database`; letters such as `@`, `/` and `?` in a password "
            "are written as `%40`, `%2F` and `%3F`.",
        )
    return given
