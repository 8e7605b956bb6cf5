"""The rows that a run set aside: listed with the batch that found them, released by the run that did them."""

from __future__ import annotations

from uuid import UUID

import pytest

from rowsweep.errors import InvariantBroken
from rowsweep.queue.stores.rejected import RejectedRow
from tests.queue.world import World, fresh_id, is_near, new_backfill


def rejected(number: int, error: str = "ValueError: no", *, table: str = "orders") -> RejectedRow:
    return RejectedRow(table=table, key={"id": str(number)}, error=error)


def listed(world: World, run_id: UUID) -> list[tuple[str, str, str]]:
    assert world.row(run_id).rejected_rows == len(world.rejected.list(run_id))
    return [(row.table, row.key["id"], row.error) for row in world.rejected.list(run_id)]


def test_rows_are_listed_as_they_came_each_stamped_by_the_store(world: World) -> None:
    """N-084: key as text, error, instant."""
    job = world.sweep()
    assert listed(world, job.run_id) == []
    assert world.rejected.add(job.run_id, [rejected(7), rejected(3, "é")]) == 2
    assert world.rejected.add(job.run_id, [rejected(9)]) == 3
    assert [key for _, key, _ in listed(world, job.run_id)] == ["7", "3", "9"]
    first = world.rejected.list(job.run_id)[0]
    assert first.at is not None
    assert is_near(first.at, world.hands.now())


def test_a_composite_key_comes_back_with_its_names(world: World) -> None:
    """N-084."""
    job = world.sweep()
    row = RejectedRow(table="lines", key={"order_id": "1", "n": 'a"b'}, error="no")
    world.rejected.add(job.run_id, [row])
    assert world.rejected.list(job.run_id)[0].key == {"order_id": "1", "n": 'a"b'}


def test_a_row_that_is_listed_already_takes_the_new_error(world: World) -> None:
    """N-084: one row, one entry, however often it was found."""
    job = world.sweep()
    world.rejected.add(job.run_id, [rejected(1, "old"), rejected(2)])
    assert world.rejected.add(job.run_id, [rejected(1, "new"), rejected(1, "other", table="others")]) == 3
    assert listed(world, job.run_id) == [
        ("orders", "2", "ValueError: no"), ("orders", "1", "new"), ("others", "1", "other"),
    ]  # fmt: skip


def test_rows_are_released_from_every_other_run_of_the_sweep_with_that_input(world: World) -> None:
    """N-086: rows that succeed leave the list, wherever it is; another sweep's or input's list is none of it."""
    first, retry, other = world.sweep(), world.sweep(), world.sweep()
    world.rejected.add(first.run_id, [rejected(1), rejected(2), rejected(1, table="others")])
    world.rejected.add(retry.run_id, [rejected(2)])
    world.rejected.add(other.run_id, [rejected(1)])
    elsewhere, of_input = fresh_id(), fresh_id()
    world.ledger.start(new_backfill(elsewhere, name="another"))
    world.ledger.start(new_backfill(of_input, input={"year": 2024}))
    for run_id in (elsewhere, of_input):
        world.rejected.add(run_id, [rejected(1)])
    world.rejected.release(retry.run_id, "orders", [{"id": "1"}, {"id": "2"}])
    assert listed(world, first.run_id) == [("others", "1", "ValueError: no")]
    assert listed(world, other.run_id) == []
    assert [key for _, key, _ in listed(world, retry.run_id)] == ["2"]
    assert [len(listed(world, run_id)) for run_id in (elsewhere, of_input)] == [1, 1]


def test_without_a_ledger_row_there_is_no_list(world: World) -> None:
    """N-084: a rejected row that nobody would find again is no way on."""
    with pytest.raises(InvariantBroken):
        world.rejected.add(fresh_id(), [rejected(1)])
    assert world.rejected.list(fresh_id()) == []


def test_what_is_rolled_back_is_not_listed(world: World) -> None:
    """N-084: rows are recorded in one transaction with the cursor's move, or not at all."""
    job = world.sweep()
    world.rejected.add(job.run_id, [rejected(1)])
    with pytest.raises(InvariantBroken):
        add_both(world, [job.run_id, fresh_id()])
    assert [key for _, key, _ in listed(world, job.run_id)] == ["1"]


def add_both(world: World, run_ids: list[UUID]) -> None:
    with world.driver.transaction() as opened:
        assert opened.stores.rejected is not None
        for run_id in run_ids:
            opened.stores.rejected.add(run_id, [rejected(2)])
