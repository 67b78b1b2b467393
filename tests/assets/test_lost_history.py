"""Dagster's history was wiped, and its cursors were not: whoever reads it by the number of the newest event notices."""

from __future__ import annotations

import dagster as dg
import pytest

from backfill_assets import TableSpec, build_lakehouse_table
from backfill_assets.errors import TableSpecError
from tests.support.alert_office import TABLE
from tests.support.alert_office import Office as AlertOffice
from tests.support.alert_receiver import Receiver
from tests.support.follow_office import DAYS, FOLLOWING
from tests.support.follow_office import Office as FollowOffice
from tests.support.launching import daily_totals


def test_a_table_goes_on_following():
    """All that the new history tells of is followed, and nothing of the old one again."""
    with dg.DagsterInstance.local_temp() as instance:
        office = FollowOffice(instance)
        office.published(*DAYS)
        assert office.tick() == "Nothing is new."
        office.published(*DAYS)
        assert office.asked() == [(DAYS[0], DAYS[2])]
        instance.wipe()
        office.published(DAYS[0])
        assert office.asked() == [(DAYS[0], DAYS[0])]
        office.published(DAYS[1])
        assert office.asked() == [(DAYS[1], DAYS[1])]


def test_a_run_that_somebody_deletes_is_no_reason_to_follow_all_of_history():
    """The newest number is a smaller one then: what was published before the first look, or was followed, is not launched."""
    with dg.DagsterInstance.local_temp() as instance:
        office = FollowOffice(instance)
        office.published(*DAYS)
        assert office.tick() == "Nothing is new."
        office.published_with_this_table(DAYS[0], DAYS[0])
        office.tick()
        (deleted,) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS]))
        instance.delete_run(deleted.run_id)
        assert office.tick() == "Nothing is new."
        office.published(DAYS[1])
        assert office.asked() == [(DAYS[1], DAYS[1])]


def test_a_stream_is_heard(office: AlertOffice, receiver: Receiver):
    """Its batches are the first events of the new history: one that lags is told, and it is not silent."""
    for _ in range(5):
        office.batch()
    office.tick()
    office.instance.wipe()
    office.batch(lag=21.0)
    office.tick()
    assert receiver.news() == [("stream_lags", "open", TABLE)]


def test_whose_spec_is_not_given():
    """A table in Python follows another one, and only its own spec is there."""
    with pytest.raises(TableSpecError, match="`bronze/orders`, whose spec was not given.*`inputs=`"):
        build_lakehouse_table(TableSpec.model_validate(FOLLOWING.model_dump(exclude_unset=True)), daily_totals)
