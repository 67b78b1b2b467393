"""What the names of files say about when their rows happened, where nobody has described them yet. A guess. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backfill_assets.core.calendar.layouts import ANY_TIME, FLAT, LAYOUTS, Layout, Unit
from backfill_assets.core.calendar.windows import Window

_ENOUGH, STRAY = 0.9, 0.1
"""How much of all files a layout has to fit, and up to which part they are strays that decide nothing."""
_LOOKED_AT, _LAYOUTS_TRIED = 2_000, 50
"""Paths that decide, and the layouts that are tried on them: the most frequent ones."""
_FINENESS = (Unit.ANY, Unit.YEAR, Unit.MONTH, Unit.DAY, Unit.HOUR)

_YEAR = r"(?P<year>(?:19|20|21)\d{2})"
_DATE = rf"{_YEAR}-(?P<month>\d{{2}})-(?P<day>\d{{2}})"
_PART = re.compile(r"(?P<label>[A-Za-z_]+=)?(?P<digits>\d{1,4})")
_IN_A_FOLDER = (_DATE, rf"{_YEAR}(?P<month>\d{{2}})(?P<day>\d{{2}})", rf"{_YEAR}-(?P<month>\d{{2}})")
_IN_A_NAME = (
    rf"{_DATE}T(?P<hour>\d{{2}})",
    rf"{_YEAR}(?P<month>\d{{2}})(?P<day>\d{{2}})T(?P<hour>\d{{2}})",
    _DATE,
    rf"{_YEAR}_(?P<month>\d{{2}})_(?P<day>\d{{2}})",
    rf"{_YEAR}(?P<month>\d{{2}})(?P<day>\d{{2}})",
    rf"{_YEAR}[-_](?P<month>\d{{2}})",
    rf"{_YEAR}(?P<month>\d{{2}})",
    _YEAR,
)


@dataclass(frozen=True, slots=True)
class FirstLayout:
    """A layout that fits most of the files.

    Args:
        template: As a spec says it.
        unit: How much time one name is about.
        windows: Those that have a file, in order; the names are taken for UTC.
        gaps: Hours, days, months or years between the first and the last that have none.
        misfits: Files that it does not fit.
    """

    template: str
    unit: Unit
    windows: tuple[Window, ...]
    gaps: int = 0
    misfits: tuple[str, ...] = ()


def first_layout(paths: Sequence[str]) -> FirstLayout:
    """Return the finest layout that fits nearly all of the files; `flat` if hardly a name says a time.

    If no layout does, it is the one that fits the most, with those that it does not fit.

    Args:
        paths: Of files below the source's root, without a slash in front.

    | path                                      | layout                                    |
    |-------------------------------------------|-------------------------------------------|
    | 2024/02/29/part-0.parquet                 | year/month/day                            |
    | year=2024/month=02/day=29/part-0.parquet  | hive                                      |
    | dt=2024-02-29/part-0.parquet              | dt={date}                                 |
    | 2024-02-29/part-0.parquet                 | {date}                                    |
    | export/2024/2/29/part/part-0.parquet      | export/{year}/{month}/{day}               |
    | day_20240229/part-0.parquet               | day_{year}{month}{day}                    |
    | 2024/02/29/23/part-0.parquet              | {year}/{month}/{day}/{hour}               |
    | dt=2024-02-29/hour=23/part-0.parquet      | dt={date}/hour={hour}                     |
    | 2024/02/part-0.parquet                    | {year}/{month}                            |
    | month=2024-02/part-0.parquet              | month={year}-{month}                      |
    | 2024/part-0.parquet                       | {year}                                    |
    | orders_2024-02-29.csv                     | orders_{date}.csv                         |
    | orders_2024-02-29_0001.csv.gz             | orders_{date}_*.csv.gz                    |
    | 2024/02/orders_20240229.csv               | {year}/{month}/orders_{year}{month}{day}.csv |
    | 2024/orders_2024-02.csv                   | {year}/orders_{year}-{month}.csv          |
    | shop7/orders-20240229T23.json             | */orders-{year}{month}{day}T{hour}.json   |
    | orders_2024.parquet                       | orders_{year}.parquet                     |
    | all/part-00000-8b2f.parquet               | flat                                      |
    | 2024/13/part-0.parquet                    | {year}                                    |
    | 20241399.csv                              | flat                                      |
    """
    some = paths[:: max(len(paths) // _LOOKED_AT, 1)]
    made = Counter(template for path in some for template in set(_templates(path)))
    layouts = [Layout(template, "UTC") for template, _ in made.most_common(_LAYOUTS_TRIED)]
    fitting = [(sum(layout.window_of(path) is not None for path in some), layout) for layout in layouts]
    most = max((count for count, _ in fitting), default=0)
    if most <= STRAY * len(some):
        return FirstLayout(FLAT, Unit.ANY, (ANY_TIME,))
    _, best = max(
        (found for found in fitting if found[0] >= min(_ENOUGH * len(some), most)),
        key=lambda found: (
            _FINENESS.index(found[1].unit),
            found[0],
            not found[1].names_files,
            -found[1].template.count("*"),
            found[1].template,
        ),
    )
    named = {path: best.window_of(path) for path in paths}
    windows = tuple(sorted({window for window in named.values() if window is not None}))
    slots = best.slots_in(Window(windows[0].start_utc, windows[-1].end_utc))
    short = {template: name for name, template in LAYOUTS.items()}
    return FirstLayout(
        short.get(best.template, best.template),
        best.unit,
        windows,
        len(slots) - len(windows),
        tuple(path for path, window in named.items() if window is None),
    )


def _templates(path: str) -> Iterator[str]:
    """Yield the templates that a path may follow, from each folder and from its name; not each is a layout."""
    if "{" in path or "}" in path:
        return
    *folders, name = path.split("/")
    kept: list[str] = []
    said: set[str] = set()
    for part in folders:
        found = _folder(part, said)
        if found is None:
            kept.append(re.sub(r"[^/=]*\d[^/]*", "*", part))
            continue
        text, fields = found
        kept.append(text)
        said |= fields
        yield from _with_any("/".join(kept))
    for text in _names(name):
        yield from _with_any("/".join([*kept, text]))


def _with_any(template: str) -> Iterator[str]:
    """Yield a template, and as it is where all that is no time may be something else in other files."""
    yield template
    *folders, last = template.split("/")
    front = [part if "{" in part else re.sub(r"[^=]+$", "*", part) for part in folders]
    yield "/".join([*front, last])
    text = re.sub(r"^[^{]+(?={)", "*", last)
    if "." in last or "*" in last:  # a file's name
        yield "/".join([*front, f"{last[: last.rindex('}') + 1]}*"])
        text = f"{text[: text.rindex('}') + 1]}*"
    yield "/".join([*front, text])


def _folder(part: str, said: set[str]) -> tuple[str, set[str]] | None:
    """Return the template of one folder and the fields that it says, after those that folders above it have said."""
    if not said:
        for pattern in _IN_A_FOLDER:
            if match := re.fullmatch(rf"(?P<front>(?:.*\D)?){pattern}(?P<back>(?:\D.*)?)", part):
                return f"{_plain(match['front'])}{_fields(match)}{_plain(match['back'])}", set(_said(match))
    match = _PART.fullmatch(part)
    following = next((field for field in ("year", "month", "day", "hour") if field not in said), None)
    if match is None or following is None or (len(match["digits"]) == 4) != (following == "year"):
        return None
    if following == "year" and not re.fullmatch(_YEAR, match["digits"]):
        return None
    return f"{match['label'] or ''}{{{following}}}", {following}


def _names(name: str) -> Iterator[str]:
    """Yield the templates of a file's name, the finest first."""
    stem, dot, ending = name.partition(".")
    for pattern in _IN_A_NAME:
        for match in re.finditer(rf"(?<!\d){pattern}(?!\d)", stem):
            front, back = _plain(stem[: match.start()]), _plain(stem[match.end() :])
            text = f"{front}{_fields(match)}{back}{dot}{ending}"
            yield text if dot or "*" in text else f"{text}*"


def _said(match: re.Match[str]) -> list[str]:
    return [name for name in match.groupdict() if name not in ("front", "back")]


def _fields(match: re.Match[str]) -> str:
    """Return the part of a text that says a time, with fields for its digits."""
    names = _said(match)
    text, begin = match[0], match.start()
    for name in reversed(names):
        text = f"{text[: match.start(name) - begin]}{{{name}}}{text[match.end(name) - begin :]}"
    text = text.removeprefix(match.groupdict().get("front") or "").removesuffix(match.groupdict().get("back") or "")
    return text.replace("{year}-{month}-{day}", "{date}")


def _plain(text: str) -> str:
    """Return a text beside a time as a template has it: what has a digit in it may be another one in the next file."""
    return re.sub(r"[A-Za-z0-9]*\d[^_.=]*", "*", text)
