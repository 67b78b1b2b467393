"""Numbers of Parquet in a column of another type: the same number or a refusal, on classic and on Connect sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.places.servers import run_on
from tests.sources.files.numbers_by_value import CASES, FLAT_BAD, FLAT_GOOD, Case, day_of, outcomes
from tests.support.shop import rows_in


@pytest.fixture(scope="module", params=["classic", pytest.param("connect", marks=pytest.mark.prove)])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "connect":
        return folder, run_on("tests.sources.files.numbers_by_value", folder, request.getfixturevalue("warm_server"))
    return folder, outcomes(request.getfixturevalue("spark"), folder)


def values_in(folder: Path, table: str, column: str) -> dict[str, list[Any]]:
    """What delta-rs reads in a column, by day and in the order of the ids."""
    by_day: dict[str, list[Any]] = {}
    for row in sorted(rows_in(folder / "tables" / table), key=lambda row: row["id"]):
        by_day.setdefault(str(row["day"]), []).append(row[column])
    return by_day


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_number_is_read_exactly_or_refused(found: tuple[Path, dict[str, Any]], case: Case):
    """A number that the column's type has is read; any other refuses its day, and is named with its file."""
    folder, refused = found
    said, day = refused["cases"].get(day_of(case)), day_of(case)
    if case.said is None:
        assert said is None, said
        assert values_in(folder, "cases", case.column)[day] == list(case.values)
    else:
        assert said is not None
        assert (
            f"1 row cannot be read. For example: file:{folder}/cases/{day.replace('-', '/')}/a.parquet: {case.said}"
            in said
        )
        assert day not in values_in(folder, "cases", case.column)


def test_months_with_and_without_nulls_are_one_column(found: tuple[Path, dict[str, Any]]):
    """Files of whole numbers, and files that pandas made `double` for a NULL, are read into either type."""
    folder, refused = found
    assert refused[FLAT_GOOD] == {}
    days = ("2024-01-01", "2024-01-02")
    assert values_in(folder, FLAT_GOOD, "v_bigint") == {day: [3, 4, 5, None] for day in days}
    assert values_in(folder, FLAT_GOOD, "v_double") == {day: [3.0, 4.0, 5.5, None] for day in days}


def test_a_bad_number_fails_all_that_its_file_may_hold(found: tuple[Path, dict[str, Any]]):
    """In a file that may hold any partition, one number refuses them all, as a text would."""
    folder, refused = found
    for said in refused[FLAT_BAD].values():
        assert "bad.parquet` cannot be read; they could belong to any partition" in said
        assert "`v_bigint` is no exact bigint: 0.5" in said
    assert list(refused[FLAT_BAD]) == ["2024-01-01", "2024-01-02"]
    assert rows_in(folder / "tables" / FLAT_BAD) == []
