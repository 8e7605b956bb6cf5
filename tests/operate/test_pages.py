"""Cursors and limits of pages, and their refusals."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep.errors import InvalidOption, InvalidPage
from rowsweep.operate.operator import Operator
from rowsweep.operate.pages import DEFAULT_JOB_PAGE, MAX_JOB_PAGE, job_cursor, page_bounds
from rowsweep.queue.selection import JobPosition
from tests.queue.world import World, new_job

POSITION = JobPosition(datetime(2026, 3, 1, 4, 30, 1, 123456, tzinfo=UTC), UUID("01998f0a-1b2c-7d3e-8f40-123456789abc"))


def coded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@given(
    created_at=st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    job_id=st.uuids(),
    offset=st.integers(-23, 23),
)
def test_a_cursor_brings_its_place_back_exactly(created_at: datetime, job_id: UUID, offset: int) -> None:
    """D-26, S-392: to the microsecond, whatever zone the instant was read in."""
    place = JobPosition(created_at, job_id)
    cursor = job_cursor(place)
    assert cursor == cursor.strip().replace("+", "").replace("/", "").replace("=", "")
    assert page_bounds(cursor, None) == (place, None)
    assert page_bounds(None, cursor) == (None, place)
    elsewhere = created_at.astimezone(timezone(timedelta(hours=offset)))
    assert job_cursor(JobPosition(elsewhere, job_id)) == cursor


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "!!!",
        "é",
        "A" * 10_000,
        job_cursor(POSITION) + "=",
        job_cursor(POSITION)[:-1],
        coded(f"2 2026-03-01T04:30:01.123456+00:00 {POSITION.id}"),
        coded(f"1 2026-03-01T04:30:01.123456 {POSITION.id}"),
        coded(f"1 2026-03-01T04:30:01+00:00 {POSITION.id}"),
        coded(f"1 2026-03-01T04:30:01.123456+01:00 {POSITION.id}"),
        coded("1 2026-03-01T04:30:01.123456+00:00 1"),
        coded("1 infinity 01998f0a-1b2c-7d3e-8f40-123456789abc"),
        coded("1"),
        7,
    ],
)
@pytest.mark.parametrize("which", ["after", "before"])
def test_a_cursor_that_no_page_produced_is_refused_by_name(cursor: str, which: str) -> None:
    """S-391, D-26."""
    bounds = (cursor, None) if which == "after" else (None, cursor)
    with pytest.raises(InvalidPage, match=which) as refused:
        page_bounds(*bounds)
    assert refused.value.meta == {"cursor": which}
    assert refused.value.fix == "rowsweep jobs ls --limit 200 --json"


def test_both_cursors_at_once_are_refused() -> None:
    """S-388, D-26: never both."""
    with pytest.raises(InvalidPage, match="both"):
        page_bounds(job_cursor(POSITION), job_cursor(POSITION))


def test_a_page_has_a_hundred_jobs_and_two_hundred_at_most(operate: Operator, world: World) -> None:
    """S-390, S-391."""
    world.jobs.enqueue([new_job() for _ in range(MAX_JOB_PAGE + 3)])
    assert (DEFAULT_JOB_PAGE, MAX_JOB_PAGE) == (100, 200)
    assert len(operate.list()) == 100
    assert len(operate.list(limit=200)) == 200
    assert operate.list(limit=0) == []
    for read in (operate.list, operate.dead_letters):
        with pytest.raises(InvalidPage, match="201"):
            read(limit=201)
        with pytest.raises(InvalidOption, match="limit"):
            read(limit=-1)


def test_pages_lead_forth_and_back_over_every_job(operate: Operator, world: World) -> None:
    """S-388, S-390: a page shorter than its limit is the last."""
    world.jobs.enqueue([new_job() for _ in range(25)])
    pages = [operate.list(limit=10)]
    while len(pages[-1]) == 10:
        pages.append(operate.list(limit=10, after=pages[-1][-1].cursor))
    assert [len(page) for page in pages] == [10, 10, 5]
    assert len({job.id for page in pages for job in page}) == 25
    assert operate.list(limit=10, before=pages[2][0].cursor) == pages[1]
    assert operate.list(limit=10, before=pages[1][0].cursor) == pages[0]
    assert operate.list(limit=10, before=pages[0][0].cursor) == []


def test_a_walk_goes_over_as_many_pages_as_it_takes(operate: Operator, world: World) -> None:
    """S-388."""
    world.jobs.enqueue([new_job() for _ in range(405)])
    assert len({job.id for job in operate.walk(limit=1_000)}) == 405
    assert len(list(operate.walk(limit=401))) == 401
    assert len(list(operate.walk(limit=400))) == 400
    assert list(operate.walk(limit=0)) == []
