"""The wait for open transactions holds nothing, is bounded, and can be paused, cancelled, drained and crashed into."""

from __future__ import annotations

from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import SweepCancelled
from tests.sweeps.field import NOW, Background, Field, until
from tests.sweeps.late.test_look import (
    INSERT,
    ONE_LATE,
    UNSWEPT,
    orders_without,
    totals_sweep,
    waits_for_writers,
    writing,
)


def waiting(field: Field, **given: Any) -> tuple[Any, Background]:
    """Launch, and let the pass come to its wait."""
    run = totals_sweep(**given).launch()
    ticking = Background(field.tick)
    until(waits_for_writers(field, run))
    return run, ticking


@pytest.mark.slow
def test_a_wait_holds_no_connection(field: Field) -> None:
    """N-057: between two looks the pool has all of them back."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:
        _, ticking = waiting(field)
        pool = field.app.driver._pools._opened.work._pool  # type: ignore[attr-defined]
        until(lambda: pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"], "all connections given back")
        writer.commit()
        assert ticking.result().outcome == "completed"


@pytest.mark.slow
def test_a_paused_wait_goes_on_where_the_run_is_resumed(field: Field) -> None:
    """N-080: the writers of the last page are kept; what they wrote meanwhile is found."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:
        run, ticking = waiting(field)
        run.pause()
        assert ticking.result().outcome == "suspended"
        assert field.row(run).status == "paused"
        assert field.steps(run)["sweep:writers"].output["open"]
        writer.commit()
    run.resume()
    assert field.finish(run)["late"] == ONE_LATE
    assert field.sql(UNSWEPT) == []


def test_a_wait_is_cancelled_at_once(field: Field) -> None:
    """N-081."""
    orders_without(field, 3)
    with writing(field, INSERT):
        run, ticking = waiting(field, late_wait=None)
        run.cancel("enough")
        with pytest.raises(SweepCancelled):
            run.wait(timeout="5s")
        ticking.result()
    assert field.row(run).rows == 19


@pytest.mark.slow
def test_a_drain_ends_the_wait_and_the_next_attempt_waits_for_the_same(field: Field) -> None:
    """N-057: a deploy in the wait costs nothing."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:
        run = totals_sweep(late_wait=None).launch()
        with field.working():
            until(waits_for_writers(field, run))
        assert field.job(run).state == "ready"
        writer.commit()
    assert field.finish(run)["late"] == ONE_LATE


@pytest.mark.slow
def test_the_time_of_the_wait_goes_on_while_nobody_works(field: Field) -> None:
    """N-057: it is counted from the last page, by the database's clock."""
    orders_without(field, 3)
    with writing(field, INSERT):
        run, ticking = waiting(field, late_wait="1h")
        run.pause()
        ticking.result()
        earlier = "jsonb_set(output, '{{at}}', to_jsonb((now() - interval '2h')::text))"
        field.queue_sql(f"update {{x_job_steps}} set output = {earlier} where name = 'sweep:writers'")
        run.resume()
        assert field.finish(run)["late"] == {"rows": 0, "writers": 1, "unsure": 0, "proved": True}


@pytest.mark.slow
@pytest.mark.parametrize("atomic", [True, False])
def test_a_second_look_that_fails_goes_on_behind_its_last_batch(field: Field, atomic: bool) -> None:
    """N-057, N-060: its position is a durable step, its counts are absolute, no row is done twice."""
    orders_without(field, *range(1, 13))
    calls: list[list[int]] = []
    many = "insert into orders (id, price, qty) select i, 2, 5 from generate_series(1, 12) i"

    @rs.backfill(
        "bands", rows=rs.Rows("orders", where="band is null"), atomic=atomic, batch_rows=4, adapt=False, retry=NOW
    )
    def bands(batch: rs.Batch) -> list[dict[str, Any]]:
        ids = [row["id"] for row in batch.rows]
        if batch.index == 3 and ids not in calls:
            calls.append(ids)
            raise RuntimeError("once")
        calls.append(ids)
        return [{"id": number, "band": "done"} for number in ids]

    with writing(field, many) as writer:
        run = bands.launch()
        ticking = Background(lambda: field.finish(run))
        until(waits_for_writers(field, run))
        writer.commit()
        totals = ticking.result()
    assert (totals["rows"], totals["batches"], totals["late"]["rows"]) == (20, 5, 12)
    assert calls == [[13, 14, 15, 16], [17, 18, 19, 20], [1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8], [9, 10, 11, 12]]
    late = field.steps(run)["sweep:late"].output
    assert (late["index"], late["rows"], late["cursor"]) == (4, 20, None)
