"""What the names of a feed's files say of each other."""

from __future__ import annotations

import pytest

from backfill_assets.core.live.feed import FeedFile, is_of_another_log
from tests.support.docstring_tables import table_of


@pytest.mark.parametrize("case", table_of(is_of_another_log), ids=str)
def test_files_of_another_log_are_told_by_their_names(case):
    """As the docstring's table says."""
    named = [] if case["files"] == "none" else case["files"].split(", ")
    files = [FeedFile(*map(int, name.removesuffix(" empty").split("-")), is_idle="empty" in name) for name in named]
    assert is_of_another_log(files, int(case["position"])) == (case["of another log"] == "yes")
