"""A file and its copy in one folder: the rows of one of them would count twice."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard

from backfill_assets.errors import SourceRepeatedError
from tests.sources.files.landing import days, files_spec, source_of, staged_rows
from tests.support.shop import folder_of, orders, write_json


@pytest.mark.parametrize(
    "name",
    ["orders.json.gz", *(pytest.param(f"orders.json{end}", marks=pytest.mark.prove) for end in (".zst", "~", ".PART"))],
)
def test_a_file_beside_its_copy_is_refused(spark, tmp_path, name):
    """`zstd` keeps what it packs, and editors keep what they change; such a name alone is that of a file like any other."""
    spec = files_spec(key_columns=[], source={"format": "json"})
    day = folder_of(tmp_path, "2024-01-01")
    write_json(day, orders("2024-01-01"))
    plain = (day / "orders.json").read_bytes()
    packed = {".gz": gzip.compress, ".zst": zstandard.compress}.get(Path(name).suffix, bytes)(plain)
    (day / name).write_bytes(packed)

    write_json(folder_of(tmp_path, "2024-01-02"), orders("2024-01-02"))
    assert len(staged_rows(source_of(spark, spec, tmp_path), days(spec, "2024-01-02"))) == 3, (
        "another day may be launched"
    )
    with pytest.raises(SourceRepeatedError, match=rf"orders.json` and `.*/{name}` have one name but for how they are"):
        source_of(spark, spec, tmp_path).survey(days(spec, "2024-01-01"))
    (day / "orders.json").unlink()
    assert len(staged_rows(source_of(spark, spec, tmp_path), days(spec, "2024-01-01"))) == 3

    (day / "orders.json").touch()
    assert len(staged_rows(source_of(spark, spec, tmp_path), days(spec, "2024-01-01"))) == 3, "it has no rows"
    elsewhere = day / "EU/orders.json"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(plain)
    assert len(staged_rows(source_of(spark, spec, tmp_path), days(spec, "2024-01-01"))) == 6, "it is in another folder"
