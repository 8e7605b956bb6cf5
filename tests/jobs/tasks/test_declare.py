"""`task()`: what a declaration takes, what it refuses at once, and what its handle answers."""

from __future__ import annotations

import types
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import DuplicateJob, InvalidDeclaration, InvalidOption, UnknownJob
from rowsweep.jobs.tasks import registry
from rowsweep.jobs.tasks.handle import TaskHandle

AT = datetime(2025, 1, 31, 9, tzinfo=UTC)


def nothing(at: datetime) -> list[Any]:
    """Enqueue nothing."""
    return []


def declare(name: str | None = "nightly", **changes: Any) -> TaskHandle:
    """Declare a task that is sound unless the changes say otherwise."""
    given: dict[str, Any] = {"cron": "0 3 * * *", "tz": "Europe/London", "enqueue": nothing}
    return rs.task(name, **(given | changes))


def test_a_handle_says_what_was_declared() -> None:
    """S-221, S-225, S-230."""
    made = declare()
    assert (made.kind, made.name, made.cron, made.tz) == ("task", "nightly", "0 3 * * *", "Europe/London")
    assert (made.catch_up, made.max_catch_up) == ("skip", 10)


def test_a_missing_and_an_unknown_zone_are_refused_apart_naming_the_task() -> None:
    """S-222."""
    with pytest.raises(InvalidDeclaration, match="'nightly' names no time zone") as missing:
        rs.task("nightly", cron="0 3 * * *", enqueue=nothing)
    assert missing.value.meta["field"] == "tz"
    with pytest.raises(InvalidDeclaration, match="'nightly': There is no IANA time zone 'London'") as unknown:
        declare(tz="London")
    assert unknown.value.fix == 'tz="Europe/London"'


@pytest.mark.parametrize("field", ["cron", "tz", "enqueue"])
def test_a_missing_field_is_refused_by_its_name(field: str) -> None:
    """S-020, S-221: also where a task is taken for a decorator."""
    given: dict[str, Any] = {"cron": "0 3 * * *", "tz": "Europe/London", "enqueue": nothing}
    del given[field]
    with pytest.raises(InvalidDeclaration, match="The task 'nightly' names no") as missing:
        rs.task("nightly", **given)
    assert missing.value.meta["field"] == field


@pytest.mark.parametrize("tz", ["", None, "+01:00", "right/UTC", "localtime", "/etc/localtime", "America", "utc ", 3])
def test_what_is_no_zone_id_is_refused(tz: Any) -> None:
    """S-222."""
    with pytest.raises(InvalidDeclaration):
        declare(tz=tz)


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("61 * * * *", "minute field is 61"),
        ("0 24 * * *", "hour field is 24"),
        ("0 0 0 * *", "day-of-month field is 0"),
        ("0 0 * 13 *", "month field is 13"),
        ("0 0 * * MOON", "day-of-week field is MOON"),
        ("0 0 * * 5-1", "day-of-week field is 5-1"),
        ("*/0 * * * *", "minute field"),
        ("*/90 * * * *", "step 90"),
        ("0 0 31 4 *", "day-of-month"),
        ("0 0 30 2 *", "day-of-month"),
        ("* * * *", "4 fields"),
        ("0 0 * * * *", "6 fields"),
        ("", "names no cron"),
        ("@hourl", "no alias"),
        ("@reboot", "no alias"),
        ("every day", "2 fields"),
        (5, "must be text"),
    ],
)
def test_a_cron_that_makes_no_sense_is_refused_with_the_reason(cron: Any, why: str) -> None:
    """N-022."""
    with pytest.raises(InvalidDeclaration, match=why) as refused:
        declare(cron=cron)
    assert refused.value.meta["field"] == "cron"
    assert "nightly" in refused.value.cause


@pytest.mark.parametrize(
    "changes", [{"catch_up": "all"}, {"catch_up": None}, {"enqueue": None}, {"enqueue": [("job", None)]}]
)
def test_other_nonsense_is_refused(changes: dict[str, Any]) -> None:
    """S-221."""
    with pytest.raises(InvalidDeclaration):
        declare(**changes)


@pytest.mark.parametrize("number", [0, -1, True, 2.5, "3", float("nan"), 1_001])
def test_max_catch_up_is_a_count(number: Any) -> None:
    """S-353, D-35."""
    with pytest.raises(InvalidOption):
        declare(max_catch_up=number)


def test_entries_get_the_occurrences_own_instant_in_utc_and_keep_their_order() -> None:
    """S-223, S-224, S-231."""
    first, second = rs.job("b", print, tenant="none", input=str), rs.job("a", print, tenant="none")
    seen: list[datetime] = []

    def enqueue(at: datetime) -> list[Any]:
        seen.append(at)
        return [(first, at.isoformat()), (second, None), (first, "again")]

    made = declare(enqueue=enqueue)
    assert made.entries(AT.astimezone(timezone(timedelta(hours=5)))) == [
        (first, "2025-01-31T09:00:00+00:00"), (second, None), (first, "again"),
    ]  # fmt: skip
    assert (seen[0], seen[0].tzinfo) == (AT, UTC)
    assert made.describe() == {
        "kind": "task", "name": "nightly", "cron": "0 3 * * *", "tz": "Europe/London", "catch_up": "skip",
        "max_catch_up": 10, "jobs": ["b", "a", "b"],
    }  # fmt: skip


@pytest.mark.parametrize("answer", [None, "job", [("job", None)], [None], {"a": 1}, 3, [()]])
def test_an_answer_that_is_no_list_of_pairs_is_refused(answer: Any) -> None:
    """S-224."""
    with pytest.raises(InvalidDeclaration, match="pairs"):
        declare(enqueue=lambda _at: answer).entries(AT)


def test_an_occurrence_that_has_no_zone_is_refused() -> None:
    """S-223."""
    with pytest.raises(InvalidOption):
        declare().entries(datetime(2025, 1, 1))  # noqa: DTZ001


def test_keys_of_an_occurrence_are_the_jobs_own_or_positions() -> None:
    """S-248."""
    keyed = rs.job("keyed", print, tenant="none", input=int, key=lambda value: f"k{value}")
    plain = rs.job("plain", print, tenant="none", input=int)
    made = declare(enqueue=lambda _at: [(plain, 1), (keyed, 7), (plain, 2)])
    prefix = "nightly:2025-01-31T09:00:00Z"
    assert [r.idempotency_key for r in made.requests(AT)] == [f"{prefix}:0", f"{prefix}:k7", f"{prefix}:2"]


def test_fired_by_hand_the_jobs_keep_their_plain_keys(memory_app: rs.App) -> None:
    """S-232, S-055, S-220."""
    keyed = rs.job("keyed", print, tenant="none", key="only")
    made = declare(enqueue=lambda _at: [(keyed, None)])
    ((job, result),) = made.enqueue(delay="1h")
    ((_, again),) = made.enqueue()
    assert (job, result.deduplicated, again.deduplicated, again.id) == (keyed, False, True, result.id)
    inspection = memory_app.stores().inspection
    assert inspection is not None
    kept = inspection.get(result.id)
    assert kept is not None
    assert (kept.idempotency_key, kept.state) == ("only", "delayed")


def test_a_task_fired_by_hand_takes_the_options_of_enqueue(memory_app: rs.App) -> None:
    """S-045, S-232."""
    with pytest.raises(InvalidOption, match="no option 'dely'"):
        declare().enqueue(dely="1h")


def test_a_second_task_under_a_taken_name_is_refused_at_declaration() -> None:
    """S-021, S-227."""
    declare(enqueue=lambda _at: [])
    with pytest.raises(DuplicateJob) as refused:
        declare(enqueue=lambda _at: [])
    assert refused.value.meta["kind"] == "task"


def test_the_same_task_declared_again_replaces_the_former() -> None:
    """N-006, S-227."""
    declare()
    again = declare(cron="0 4 * * *")
    assert registry.registered_tasks() == [again]


def test_an_unnamed_task_is_stamped_with_its_attributes_name() -> None:
    """S-024, S-226."""
    module = types.ModuleType("shop")
    module.hourly, module.other, module.number = declare(None), declare("named"), 3  # type: ignore[attr-defined]
    assert [task.name for task in registry.registered_tasks()] == ["anonymous-task-1", "named"]
    registered = registry.register_tasks(module)
    assert [task.name for task in registered] == ["hourly", "named"]
    assert registry.get_task("hourly") is registered[0]
    assert registry.register_tasks(module) == registered


def test_one_handle_under_two_names_and_two_under_one_are_refused() -> None:
    """S-228."""
    one, other = declare(None), declare(None, enqueue=lambda _at: [])
    registry.register_task("a", one)
    assert registry.register_task("a", one) is one
    with pytest.raises(DuplicateJob):
        registry.register_task("b", one)
    with pytest.raises(DuplicateJob):
        registry.register_task("a", other)
    assert registry.get_task("a") is one


def test_a_task_that_names_itself_keeps_its_name() -> None:
    """S-229."""
    made = declare("mine")
    registry.name_tasks({"attribute": made})
    assert [task.name for task in registry.registered_tasks()] == ["mine"]


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    """S-233."""
    declare()
    assert registry.is_task_handle(registry.get_task("nightly"))
    assert not registry.is_task_handle(nothing)
    with pytest.raises(UnknownJob, match="nightly"):
        registry.get_task("nightl")


@pytest.mark.parametrize("name", ["", "a:b", "x" * 101, "a\nb", 3])
def test_a_name_is_printable_text_without_colons(name: Any) -> None:
    """N-007: `:` separates the parts of an occurrence's key."""
    with pytest.raises(InvalidDeclaration):
        declare(name)
