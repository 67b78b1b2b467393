"""All specs of a lakehouse together: inputs that are there, of the same zone, that start in time."""

from __future__ import annotations

from backfill_assets.core.spec.lakehouse import check_together
from tests.core.spec.specs import spec


def reports_on(*specs):
    reports = []
    check_together({s.key: s for s in specs}, lambda key, sentence: reports.append((key, sentence)))
    return reports


def made_from(*tables, **changes):
    return spec(key="silver/sales", source={"kind": "delta", "tables": list(tables), "transform": "x.y"}, **changes)


def test_specs_that_fit_each_other_are_not_reported():
    """An input that exists and has the same zone is right, whatever its grain; files need no table."""
    assert reports_on(spec(), made_from("bronze/orders", grain="monthly")) == []


def test_an_input_that_no_spec_describes_is_reported():
    """The table is named with the input that may have been meant."""
    assert reports_on(spec(), made_from("bronze/order")) == [
        ("silver/sales", "source: there is no table `bronze/order`; did you mean `bronze/orders`?")
    ]


def test_an_input_in_another_zone_is_reported():
    """Days of two zones are not the same, so one cannot be made of the other."""
    assert reports_on(spec(), made_from("bronze/orders", time_zone="Europe/Berlin")) == [
        (
            "silver/sales",
            "time_zone: `Europe/Berlin`, but `bronze/orders` has `UTC`: a day of one is not a day of the other",
        )
    ]


def test_an_input_that_starts_later_is_reported():
    """A table cannot start before what it is made of; from the same day on it can."""
    assert reports_on(spec(start="2024-02-01"), made_from("bronze/orders", start="2024-01-31")) == [
        (
            "silver/sales",
            "start: `2024-01-31` lies before the start of `bronze/orders` (`2024-02-01`), which it is made of",
        )
    ]
    assert reports_on(spec(start="2024-02-01"), made_from("bronze/orders", start="2024-02-01")) == []


def test_a_table_in_the_place_of_another_ones_side_table_is_reported():
    """Receipts, late rows and what is quarantined lie beside a table, under its name and a word; a stream is an asset."""
    live = {"path": "events", "starts": "2024-01-04", "late": "keep"}
    for word in ("receipts", "attempts", "operations", "late", "quarantine", "live"):
        (found,) = reports_on(spec(live=live), spec(key=f"bronze/orders_{word}"))
        assert found[0] == f"bronze/orders_{word}"
        assert found[1].startswith("key: `bronze/orders` has ")
    assert reports_on(spec(), spec(key="bronze/orders_live"), spec(key="silver/orders_late")) == []


def test_two_keys_of_which_dagster_makes_one_name_are_reported():
    """Jobs, checks, sensors and steps are named after the key, without its `/`."""
    for first, second, name in (
        ("bronze/eu_orders", "bronze_eu/orders", "bronze_eu_orders"),
        ("bronze/a__b", "bronze__a/b", "bronze__a__b"),
    ):
        reports = reports_on(spec(key=first), spec(key=second))
        assert {key for key, _ in reports} == {second}
        assert f"of `{first}`: both are `{name}` there" in reports[-1][1]
    assert reports_on(spec(key="bronze/eu_orders"), spec(key="bronze/eu__orders")) == []


def test_every_contradiction_is_reported():
    """Each wrong input of each table is one report."""
    found = reports_on(spec(), made_from("bronze/orders", "xx", "yy", time_zone="Asia/Kolkata"))
    assert [sentence.split(":")[0] for _, sentence in found] == ["time_zone", "source", "source"]
