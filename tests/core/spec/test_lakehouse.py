"""All specs of a lakehouse together: inputs that are there, of the same zone, that start in time."""

from __future__ import annotations

import pytest

from backfill_assets.core.spec.lakehouse import check_together
from backfill_assets.core.spec.paths import place_of, shared_folders
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
    """Its history, late rows and what is quarantined lie beside a table, under its name and a word; a stream is an asset."""
    live = {"path": "events", "starts": "2024-01-04", "late": "keep"}
    for word in ("history", "late", "quarantine", "live"):
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


def streaming(path, key="bronze/orders", source="orders", **changes):
    live = {"path": path, "starts": "2024-01-04", "late": "keep"}
    return spec(key=key, live=live, source={"kind": "files", "path": source, "format": "json"}, **changes)


def fed(capture, key="bronze/customers"):
    source = {"kind": "jdbc", "connection": "SHOP", "table": "customers"}
    return spec(key=key, source=source, key_columns=["order_id"], changes={"capture": capture})


@pytest.mark.parametrize(
    ("stream", "source", "how"),
    [
        ("orders", "orders", "is"),
        ("orders/", "./orders", "is"),
        ("orders/events", "orders", "lies in"),
        (".", "orders", "holds"),
        ("eu/../orders", "orders", "is"),
        ("s3a://bucket/orders/events", "s3://bucket/orders", "lies in"),
        ("file:///data//orders", "/data/orders/", "is"),
        ("/data", "file:/data/orders", "holds"),
    ],
)
def test_a_stream_of_a_history_is_reported(stream, source, how):
    """A stream may not be, lie in or hold the folder of a history: its own table's or another one's."""
    for specs in ([streaming(stream, source=source)], [streaming(stream, source="/else"), files("bronze/a", source)]):
        ((key, sentence),) = reports_on(*specs)
        assert key == "bronze/orders"
        assert (
            f"live.path: the folder `{stream}` {how} `{source}`, which is `source.path` of `{specs[-1].key}`"
            in sentence
        )


@pytest.mark.parametrize(("first", "second", "is_right"), [
    ("events", "events", False), ("events", "events/eu", False), ("events/eu", "events", False),
    ("events", "events_eu", True), ("s3://a/events", "s3a://b/events", True),
])  # fmt: skip
def test_streams_share_no_folder(first, second, is_right):
    """Of two tables neither stream may be, lie in or hold the other one's; names that begin alike are apart."""
    found = reports_on(streaming(first), streaming(second, "bronze/visits", "visits"))
    assert bool(found) is not is_right
    assert all("`live.path` of `bronze/visits`" in sentence for _, sentence in found)


def test_versions_of_a_table_read_one_stream():
    """A version reads the events of the one before: the same folder, and none inside of it."""
    version = {"key": "bronze/orders__v2", "version_of": {"table": "bronze/orders"}}
    assert reports_on(streaming("events"), streaming("events", **version)) == []
    assert len(reports_on(streaming("events"), streaming("events/eu", **version))) == 1


def test_a_folder_of_changes_is_no_source():
    """Neither a history nor a stream may share the folder in which a capture lands; two tables of one feed may."""
    assert reports_on(fed("shop"), fed("shop", "bronze/orders")) == []
    for path, how in (("changes/shop", "is"), ("changes", "lies in"), ("changes/shop/a", "holds")):
        ((key, sentence),) = reports_on(fed("shop"), files("bronze/a", path))
        assert (key, f"changes.capture: the folder `changes/shop` {how} `{path}`" in sentence) == (
            "bronze/customers",
            True,
        )
    ((key, sentence),) = reports_on(fed("shop"), streaming("changes", key="bronze/a"))
    assert (key, "which is `changes.capture` of `bronze/customers`" in sentence) == ("bronze/a", True)


def test_histories_share_a_folder():
    """Two tables may be made of one export, or of a part of it."""
    assert reports_on(files("bronze/a", "orders"), files("bronze/b", "orders"), files("bronze/c", "orders/eu")) == []


def test_relative_and_absolute_paths_are_compared():
    """Once the root is known, a relative path is the absolute one that it leads to."""
    for root, absolute in (("/lake", "file:/lake/landing/orders"), ("s3a://lake/a", "s3://lake/a/landing/orders/x")):
        specs = {"bronze/orders": streaming(absolute)}
        assert len([*shared_folders(specs, lambda path, root=root: place_of(path, root))]) == 1
        assert [*shared_folders(specs, lambda path: place_of(path, "/elsewhere"))] == []


def files(key, path):
    return spec(key=key, source={"kind": "files", "path": path, "format": "json"})
