"""A source with a table that has nothing yet, and one whose source was corrected since."""

from __future__ import annotations

import pytest

from tests.core.history.world import KEYS, World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def filled():
    """A table that was published once, and a source that was corrected everywhere since."""
    made = World()
    made.run(run_id="before")
    made.correct(*KEYS)
    return made
