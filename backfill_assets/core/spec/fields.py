"""What the parts of a spec share: strict fields, and the words of their messages."""

from __future__ import annotations

import difflib
import posixpath
import re
import zoneinfo

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of a spec: a field that it does not know is refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        serialize_by_alias=True,
        hide_input_in_errors=True,  # a value may come from the environment, and be a secret in the wrong field
    )


WHERE_SECRETS_GO = (
    "Give a key or a password to Spark as a setting, for example in `SPARK_EXTRA_CONF`: there it is shown to nobody."
)


def is_uri(path: str) -> bool:
    """Say whether a path begins with a scheme: `s3a://bucket/x`, and with one slash, as Java prints it, `file:/x`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


def without_dots(path: str) -> str:
    """Return an absolute path or a URI without `.` and `..`, as storages list what lies below it; a host is kept."""
    if not {".", ".."} & set(path.split("/")):
        return path
    host = found[0] if is_uri(path) and (found := re.match(r"[^/]+:(//[^/]*)?", path)) else ""
    return host + posixpath.normpath(re.sub(r"^/+", "/", path[len(host) :]))


def path_without_password(path: str) -> str:
    """Return a path or a URI, or refuse one with a password in it; the message does not show it."""
    found = re.match(r"(\w[\w+.-]*://)([^/]*)", path)
    if found is None:
        return path
    user, at, host = found[2].rpartition("@")
    is_host = re.fullmatch(r"(\[[^]]*\]|[^:]*)(:\d*)?", host)  # else a password with a `/` in it
    if ":" in user or not is_host:
        shown = f"{found[1]}...{at}{host if is_host else ''}"
        raise ValueError(f"the URI `{shown}` has a password in it, and paths are shown everywhere")
    return path


def known_zone(name: str) -> str:
    """Return the name of a time zone, or refuse it."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(unknown(name, sorted(zoneinfo.available_timezones()), "time zone")) from error
    return name


def unknown(value: str, known: list[str], noun: str) -> str:
    """Say that a name is unknown, and which one may have been meant."""
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    if close:
        return f"there is no {noun} `{value}`; did you mean `{close[0]}`?"
    return f"there is no {noun} `{value}`; there are {in_words(known[:12])}" + (" and more" if len(known) > 12 else "")


def in_words(names: list[str]) -> str:
    """Return names, quoted, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)
