"""The bus that applications publish over, on both drivers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowsweep.app.verbs import reset_event_bus
from rowsweep.errors import DriverUnavailable, InvalidOption, NotImplementedByDriver
from rowsweep.jobs import ambient
from rowsweep.queue.bus import (
    EVENTS_PURGE_TARGET,
    EventBus,
    event_bus,
    events_purge_target,
    publish_event,
    use_event_bus,
)
from rowsweep.queue.contract import Stores
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.memory.events.bus import MemoryEventBus
from rowsweep.queue.postgres.bus import PostgresEventBus
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.queue.world import World, is_near

NAIVE = datetime(2025, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture(autouse=True)
def _bus() -> Iterator[None]:
    use_event_bus(None)
    yield
    use_event_bus(None)


def bus_of(world: World, **options: Any) -> EventBus:
    """Answer the driver's own bus."""
    driver = world.driver
    assert isinstance(driver, (MemoryDriver, PostgresDriver))
    return driver.event_bus(**options)


def test_a_driver_s_own_bus_is_of_its_kind(world: World) -> None:
    """S-168."""
    kind = MemoryEventBus if isinstance(world.driver, MemoryDriver) else PostgresEventBus
    assert type(bus_of(world)) is kind


def test_an_event_lives_as_long_as_the_bus_or_the_call_says(world: World) -> None:
    """S-172, D-15: 24 h unless told otherwise."""
    lives = [
        (bus_of(world).publish("paid"), timedelta(hours=24)),
        (bus_of(world, default_ttl="1h").publish("paid"), timedelta(hours=1)),
        (bus_of(world, default_ttl="1h").publish("paid", ttl="5s"), timedelta(seconds=5)),
    ]
    assert [event.expires_at - event.published_at for event, _ in lives] == [expected for _, expected in lives]
    assert len({event.id for event, _ in lives}) == 3
    assert all(event.id.version == 7 for event, _ in lives)


@pytest.mark.parametrize("ttl", [5, "soon", "0s", timedelta(0), -1, math.nan])
def test_a_time_to_live_is_screened_under_its_own_name(world: World, ttl: Any) -> None:
    """S-173: the default's and the call's apart."""
    with pytest.raises(InvalidOption) as default:
        bus_of(world, default_ttl=ttl)
    with pytest.raises(InvalidOption) as own:
        bus_of(world).publish("paid", ttl=ttl)
    assert (default.value.meta["option"], own.value.meta["option"]) == ("default_ttl", "ttl")
    assert bus_of(world).list() == []


@pytest.mark.parametrize("amount", [-1, 1.5, True, "10", math.inf])
def test_the_limits_are_screened(world: World, amount: Any) -> None:
    """S-174."""
    option = "max_events" if isinstance(world.driver, MemoryDriver) else "list_limit"
    with pytest.raises(InvalidOption) as caught:
        bus_of(world, **{option: amount})
    assert caught.value.meta["option"] == option


def test_a_bus_lists_up_to_its_limit(world: World) -> None:
    """S-174: the memory bus keeps no more than that."""
    option = "max_events" if isinstance(world.driver, MemoryDriver) else "list_limit"
    bus = bus_of(world, **{option: 2})
    ids = [bus.publish("paid").id for _ in range(4)]
    assert [event.id for event in bus.list()] == [ids[3], ids[2]]
    assert len(world.events.list()) == (2 if option == "max_events" else 4)


def test_the_memory_bus_purges_on_publish() -> None:
    """S-175."""
    from rowsweep.testing.clock import FakeClock

    clock = FakeClock()
    driver = MemoryDriver(clock)
    bus = driver.event_bus()
    bus.publish("paid", ttl="1s")
    clock.advance(timedelta(seconds=2))
    bus.publish("paid")
    assert len(driver._state.events) == 1


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": 5}, "name"),
        ({"key": ""}, "key"),
        ({"key": "a\x00b"}, "key"),
        ({"payload": {"a": [math.nan]}}, "payload"),
        ({"payload": object()}, "payload"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_it_is_published(world: World, given: Any, option: str) -> None:
    """N-012, D-37."""
    bus = bus_of(world)
    with pytest.raises(InvalidOption) as caught:
        bus.publish(**({"name": "paid"} | given))
    assert caught.value.meta["option"] == option
    assert bus.list() == []


def test_a_payload_is_kept_as_its_json_form(world: World) -> None:
    """S-044, N-044."""
    bus = bus_of(world)
    published = bus.publish("paid", {"at": datetime(2025, 1, 2, tzinfo=UTC), "pair": (1, 2.0)})
    assert published.payload == {"at": "2025-01-02T00:00:00Z", "pair": [1, 2.0]}
    assert bus.find("paid", since=published.published_at) == published


def test_the_ambient_transaction_publishes_with_its_commit(world: World) -> None:
    """S-179, N-048: and never if it rolls back."""
    use_event_bus(bus_of(world))
    job = world.parked()
    for commits in (False, True):
        with suppress(ZeroDivisionError), world.driver.transaction() as tx:
            with ambient.inside_transaction(tx if tx.connection is None else tx.connection):
                publish_event("paid")
            if not commits:
                raise ZeroDivisionError
        assert [event.name for event in event_bus().list()] == ["paid"] * commits
        assert [taken.id for taken in world.claim().jobs] == [job.id] * commits


def test_a_transaction_that_is_given_publishes_with_its_commit(world: World) -> None:
    """N-048."""
    bus = bus_of(world)
    with world.driver.transaction() as tx:
        bus.publish("paid", tx=tx if tx.connection is None else tx.connection)
    assert len(bus.list()) == 1


def test_the_owner_hears_of_the_queues_that_a_publication_made_due(world: World) -> None:
    """D-25: outside a transaction only; inside one nothing is due yet."""
    heard: list[list[str]] = []
    bus = bus_of(world, published=heard.append)
    world.parked()
    with world.driver.transaction() as tx:
        bus.publish("sent", tx=tx if tx.connection is None else tx.connection)
    bus.publish("paid")
    assert heard == [["default"]]


def test_a_bus_s_clock_is_its_driver_s(world: World) -> None:
    """S-169, S-170."""
    assert is_near(bus_of(world).now(), world.hands.now())


@pytest.mark.parametrize("instant", [None, "now", NAIVE])
def test_an_instant_without_a_zone_is_refused(world: World, instant: Any) -> None:
    """S-085."""
    with pytest.raises(InvalidOption):
        bus_of(world).find("paid", since=instant)


def test_a_bus_is_a_purge_target(world: World) -> None:
    """S-176, S-177, S-216: a name, and what it removed up to the pass's instant."""
    bus = bus_of(world)
    bus.publish("paid", ttl="1s")
    bus.publish("paid", ttl="1h")
    world.hands.pass_time(2)
    target = events_purge_target(bus)
    assert target.name == EVENTS_PURGE_TARGET
    assert target.purge_expired(bus.now()) == 1
    assert target.purge_expired() == 0


def test_there_is_no_bus_before_one_is_set() -> None:
    """S-168, S-179."""
    with pytest.raises(DriverUnavailable):
        publish_event("paid")


def test_a_reset_puts_a_fresh_memory_bus_in_place() -> None:
    """S-178, S-435."""
    reset_event_bus()
    publish_event("paid", {"n": 1}, key="a", ttl="1m")
    first = event_bus()
    assert [(event.name, event.key) for event in first.list()] == [("paid", "a")]
    reset_event_bus()
    assert event_bus() is not first
    assert event_bus().list() == []


def test_a_driver_without_an_event_store_says_so() -> None:
    """S-057."""

    class Eventless(MemoryDriver):
        def stores(self) -> Stores:
            from dataclasses import replace

            return replace(super().stores(), events=None)

    with pytest.raises(NotImplementedByDriver):
        EventBus(Eventless()).publish("paid")
