"""What a preview says of each target."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import RowsweepError
from rowsweep.sweeps.purge import preview as previewing
from tests.sweeps.field import Field
from tests.sweeps.purge.events import declare, left, make_events, old_events
from tests.sweeps.purge.test_passes import Noted


def test_a_preview_counts_and_deletes_nothing(field: Field) -> None:
    """D-8, N-091: each target's rows, their share, the oldest and newest; no job, step or ledger row."""
    make_events(field, 30, 70)
    make_events(field, 0, 7, table="calm", index=False)
    noted = Noted()
    frame = declare(old_events(), old_events("calm"), noted).preview()
    assert frame["target"].to_list() == ["events", "calm", "noted"]
    assert frame["rows"].to_list() == [30, 0, None]
    assert frame["rows_are"].to_list() == ["exact", "exact", None]
    assert frame["share"].to_list() == [0.3, 0.0, None]
    assert frame["walks"].to_list() == ["index events_created_at_idx", "the key", None]
    oldest, newest = field.sql("select min(created_at), max(created_at) from events where id <= 30")[0]
    assert frame.schema["oldest"] == pl.Datetime("us", "UTC")
    assert (frame["oldest"][0], frame["newest"][0]) == (oldest, newest)
    assert frame["oldest"][1] is None
    assert datetime.fromisoformat(frame["cutoff"][0]) < datetime.now(UTC) - timedelta(days=89)
    assert (left(field), left(field, "calm"), noted.asked) == (100, 7, [])
    for table in ("x_jobs", "x_job_steps", "x_backfills"):
        assert field.queue_sql(f"select count(*) from {{{table}}}") == [(0,)]


@pytest.mark.parametrize(("type_", "expected"), [
    ("timestamp", datetime(2020, 7, 1, 11, 0, tzinfo=UTC)),
    ("date", datetime(2020, 6, 30, 23, 0, tzinfo=UTC)),
    ("timestamptz", datetime(2020, 7, 1, 12, 0, tzinfo=UTC)),
])  # fmt: skip
def test_instants_are_shown_in_utc_whatever_the_column_says(field: Field, type_: str, expected: datetime) -> None:
    """D-8: wall times and dates by the target's zone; an infinite one is not shown."""
    field.sql(f"create table t (id int primary key, at {type_})")
    field.sql("insert into t values (1, '2020-07-01 12:00'), (2, '-infinity'), (3, 'infinity'), (4, null)")
    frame = declare(rs.older_than("t", "at", days=9, tz="Europe/London")).preview()
    assert (frame["rows"].item(), frame["oldest"].item(), frame["newest"].item()) == (2, expected, expected)


def test_a_table_too_large_to_count_is_estimated(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8: and says that it is."""
    make_events(field, 3_000, 7_000)
    field.sql("analyze events")
    monkeypatch.setattr("rowsweep.sweeps.setup._COUNT_BELOW", 100)
    monkeypatch.setattr(previewing, "_SPAN_TIMEOUT", "set local statement_timeout = '1ms'")
    frame = declare().preview()
    assert frame["rows_are"].item() in ("estimate", "exact")
    assert 2_500 < frame["rows"].item() < 3_500
    assert 0.25 < frame["share"].item() < 0.35


def test_a_preview_refuses_what_the_purge_would(field: Field) -> None:
    """N-049, S-215."""
    make_events(field, 3, 3)
    for purge, code in (
        (declare(old_events(), old_events()), "X_INVARIANT"),
        (declare(old_events("nowhere")), "X_SWEEP_SOURCE_UNKNOWN"),
    ):
        with pytest.raises(RowsweepError) as caught:
            purge.preview()
        assert caught.value.code == code


def test_an_implausible_purge_can_be_looked_at(field: Field) -> None:
    """D-8: that is what its refusal says to do."""
    make_events(field, 3, 3)
    assert declare(confirm=None).preview()["share"].item() == 0.5


def test_a_purge_of_nothing_has_an_empty_preview(field: Field) -> None:
    """D-8."""
    assert rs.purge("nothing", targets=list).preview().height == 0
