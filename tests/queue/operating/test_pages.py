"""Pages of the list of jobs: behind a place, in front of one, and the filters that make them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import InvalidOption
from rowsweep.queue.records import JobFilter
from rowsweep.queue.selection import JobPosition
from tests.queue.world import World, ids_of, new_job

ANY = JobFilter()


def place(world: World, job_id: UUID) -> JobPosition:
    return JobPosition(world.job(job_id).created_at, job_id)


def some_jobs(world: World) -> list[UUID]:
    """Answer ids newest first; pairs of them were made at one instant, so that only the id tells them apart."""
    ids: list[UUID] = []
    for _ in range(4):
        with world.driver.transaction() as tx:
            ids += [answer.id for answer in tx.stores.jobs.enqueue([new_job(), new_job()])]
        world.hands.pass_time(1)
    return ids[::-1]


def test_the_page_behind_a_place_goes_on_where_the_one_before_ended(world: World) -> None:
    """S-388: no row twice and none left out, also among rows of one instant."""
    ids = some_jobs(world)
    seen: list[UUID] = []
    after = None
    while page := world.inspection.list(ANY, limit=3, after=after):
        seen += ids_of(page)
        after = place(world, page[-1].id)
    assert seen == ids


def test_the_page_in_front_of_a_place_holds_the_nearest_rows_newest_first(world: World) -> None:
    """S-388: the rows nearest the cursor, not the newest there are."""
    ids = some_jobs(world)
    assert ids_of(world.inspection.list(ANY, limit=3, before=place(world, ids[5]))) == ids[2:5]
    assert ids_of(world.inspection.list(ANY, limit=9, before=place(world, ids[2]))) == ids[:2]
    assert world.inspection.list(ANY, limit=3, before=place(world, ids[0])) == []


def test_a_place_serves_once_its_row_is_gone(world: World) -> None:
    """D-26."""
    ids = some_jobs(world)
    gone = place(world, ids[3])
    world.steering.remove(ids[3])
    assert ids_of(world.inspection.list(ANY, limit=2, after=gone)) == ids[4:6]
    assert ids_of(world.inspection.list(ANY, limit=2, before=gone)) == ids[1:3]


def test_rows_a_microsecond_apart_are_told_apart(world: World) -> None:
    """S-392: the seek compares at the database's full precision."""
    older, newer = world.enqueue(), world.enqueue()
    instant = world.hands.now()
    world.hands.edit(older, created_at=instant - timedelta(microseconds=1))
    world.hands.edit(newer, created_at=instant)
    assert ids_of(world.inspection.list(ANY, after=place(world, newer))) == [older]
    assert ids_of(world.inspection.list(ANY, before=place(world, older))) == [newer]


def test_a_page_keeps_to_its_filter_in_both_directions(world: World) -> None:
    """S-388, S-389."""
    ids = [world.enqueue("a" if n % 2 else "b") for n in range(8)][::-1]
    mine = [job_id for job_id in ids if world.job(job_id).name == "a"]
    where = JobFilter(name="a", state="ready")
    assert ids_of(world.inspection.list(where, limit=2, after=place(world, mine[0]))) == mine[1:3]
    assert ids_of(world.inspection.list(where, limit=2, before=place(world, mine[3]))) == mine[1:3]


def test_ids_are_found_by_how_they_begin(world: World) -> None:
    """S-389: in any case of letters, with dashes or without."""
    wanted = world.enqueue(id=UUID("0abcdef0-1234-7000-8000-000000000001"))
    other = world.enqueue(id=UUID("0abcdef1-1234-7000-8000-000000000001"))

    def found(prefix: str) -> list[UUID]:
        return sorted(ids_of(world.inspection.list(JobFilter(id_prefix=prefix))))

    assert found("0abcdef0-12") == found("0ABCDEF01") == found(str(wanted)) == [wanted]
    assert found("0abcdef") == [wanted, other]
    assert found("1") == []


@pytest.mark.parametrize("prefix", ["", "-", "0x1", "g", "0" * 33, 7.5])
def test_a_beginning_that_no_id_has_is_refused(world: World, prefix: Any) -> None:
    """S-389, S-014."""
    with pytest.raises(InvalidOption, match="id_prefix"):
        world.inspection.list(JobFilter(id_prefix=prefix))


def test_jobs_are_found_by_when_they_were_made(world: World) -> None:
    """S-389: from inclusive, to exclusive."""
    ids = [world.enqueue() for _ in range(3)]
    instant = world.hands.now() - timedelta(hours=1)
    for n, job_id in enumerate(ids):
        world.hands.edit(job_id, created_at=instant + timedelta(microseconds=n))
    made = [world.job(job_id).created_at for job_id in ids]
    assert ids_of(world.inspection.list(JobFilter(created_from=made[1]))) == [ids[2], ids[1]]
    assert ids_of(world.inspection.list(JobFilter(created_to=made[1]))) == [ids[0]]
    assert ids_of(world.inspection.list(JobFilter(created_from=made[1], created_to=made[2]))) == [ids[1]]
