"""What may be declared and asked for, and what comes of both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidOption
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.health.choice import asked_of, checks_of, chosen, name_of
from rowsweep.sweeps.health.kinds import KINDS, Own
from rowsweep.sweeps.health.limits import Limits, limits_of, shown_size
from rowsweep.sweeps.health.reading import Reading, Replica
from rowsweep.sweeps.health.signals import Signal, default_signals, seeing
from rowsweep.sweeps.health.watch import Watch

GB = 1024.0**3


def stock_taking() -> str | None:
    return "the stock-taking"


async def later() -> str | None:
    return None


@pytest.mark.parametrize(
    ("signal", "name", "slow", "hold"),
    [
        (rs.replica_lag_below("10s"), "replica_lag", 5, 10),
        (rs.replica_lag_below(timedelta(minutes=1), slow="2s"), "replica_lag", 2, 60),
        (rs.replica_lag_bytes_below("1GB"), "replica_lag_bytes", GB / 2, GB),
        (rs.archive_backlog_below("4GB", slow="1GB"), "archive_backlog", GB, 4 * GB),
        (rs.lock_waits_below("1s"), "lock_waits", 0.5, 1),
        (rs.waiting_sessions_below(4), "waiting_sessions", 2, 4),
        (rs.active_sessions_below(50), "active_sessions", 25, 50),
        (rs.active_sessions_below("80%", slow="50%"), "active_share", 0.5, 0.8),
        (rs.oldest_snapshot_below("1h"), "oldest_snapshot", 1800, 3600),
        (rs.vacuum_idle(), "vacuum", 1, None),
        (rs.vacuum_idle(hold=True), "vacuum", None, 1),
        (rs.batch_times_below(5), "batch_times", 5, 5),
    ],
)
def test_a_factory_answers_a_signal_with_its_limits(
    signal: Signal, name: str, slow: float | None, hold: float | None
) -> None:
    """D-6: the one limit holds, half of it slows down unless another is named."""
    assert (signal.name, signal.limits.slow, signal.limits.hold) == (name, slow, hold)


def test_standbys_that_are_behind_on_purpose_can_be_left_out() -> None:
    """D-6: `recovery_min_apply_delay` cannot be seen from the primary."""
    signal = rs.replica_lag_below("10s", ignore=["delayed"])
    assert signal.limits == Limits(slow=5, hold=10, ignore=("delayed",))
    replicas = [
        Replica(name=name, behind_bytes=10, replayed=0, seconds=seconds)
        for name, seconds in (("delayed", 3_600.0), ("near", 6.0))
    ]
    reading = Reading(at=0, sees_all=True, standbys=2, replicas=tuple(replicas))
    assert signal.judge(reading, Own()).words == "replica 'near', 6s behind (limit 5s)"
    assert signal.judge(reading, Own()).level == "slow"
    assert rs.replica_lag_below("10s").judge(reading, Own()).words == "replica 'delayed', 1h behind (limit 10s)"
    only = Reading(at=0, sees_all=True, standbys=1, replicas=tuple(replicas[:1]))
    assert signal.judge(only, Own()).level == "unknown"


def test_each_signal_is_told_from_its_limits_up() -> None:
    """D-6: soft from `slow` on, hard from `hold` on; a failed reading makes all of them unknown."""
    signal = rs.archive_backlog_below("4GB")
    levels = [
        signal.judge(Reading(at=0, archives=True, archive_bytes=int(size * GB)), Own()).level
        for size in (0, 1.9, 2, 3.9, 4, 9)
    ]
    assert levels == ["ok", "ok", "slow", "slow", "hold", "hold"]
    failed = Reading(at=0, failed="the question failed: gone")
    assert {one.judge(failed, Own()).words for one in default_signals() if one.name != "batch_times"} == {
        "the question failed: gone"
    }
    nothing = Reading(at=0, archives=True)
    assert signal.judge(nothing, Own()).level == "unknown"


def test_a_signal_is_a_function_that_an_application_may_call_in_its_own() -> None:
    """D-6: it answers None or the reason to wait; inside a health function it goes by the reading of the sweep."""
    lag = rs.replica_lag_below("10s")
    replica = Replica(name="r", behind_bytes=1, replayed=0, seconds=11)
    reading = Reading(at=0, sees_all=True, standbys=1, replicas=(replica,))
    with seeing(reading, Own()):
        assert lag() == "replica 'r', 11s behind (limit 10s)"
        assert rs.replica_lag_below("30s", slow="1s")() is None

    def by_night() -> str | None:
        return None if lag() is None else "the night"

    class Sampler:
        def latest(self) -> Reading:
            return reading

    (verdict,) = Watch([by_night], Sampler(), frozenset()).look()  # type: ignore[arg-type]
    assert (verdict.name, verdict.level, verdict.words) == ("by_night", "hold", "the night")


def test_what_a_function_raises_or_answers_wrongly_is_a_reason_to_wait() -> None:
    """D-6: nobody knows then that all is well; a password in it is not shown."""

    def broken() -> str | None:
        raise ValueError("no answer from postgresql://a:secret@h/d")

    def wrong() -> Any:
        return True

    def blank() -> str | None:
        return " "

    said = {verdict.name: verdict for verdict in Watch([broken, wrong, blank, stock_taking], None, frozenset()).look()}
    assert {verdict.level for verdict in said.values()} == {"hold"}
    assert said["broken"].words == (
        "the health function broken, which raised ValueError: no answer from postgresql://a:***@h/d"
    )
    assert said["wrong"].words == "the health function wrong, which answered True instead of a reason"
    assert said["blank"].words == "the health function blank, which answered ' ' instead of a reason"
    assert said["stock_taking"].words == "the stock-taking"


def test_the_gravest_comes_first_and_among_equals_the_first_declared() -> None:
    """D-6: one reason is waited for, the others are shown."""
    said = Watch([lambda: None, stock_taking, lambda: "another"], None, frozenset()).look()
    assert [verdict.words for verdict in said] == ["the stock-taking", "another", ""]


def test_health_is_functions_signals_on_or_nothing() -> None:
    """D-6: None, () and "off" turn it off; anything else is refused early, by name."""
    assert checks_of(None) == checks_of("off") == checks_of(()) == ()
    assert checks_of(stock_taking) == (stock_taking,)
    assert checks_of([stock_taking, rs.vacuum_idle()]) == (stock_taking, rs.vacuum_idle())
    assert [name_of(check) for check in checks_of("on")] == [name for name, kind in KINDS.items() if kind.default]
    for wrong in ("yes", 5, ["replica_lag"], later, Signal, {"replica_lag": "10s"}):
        with pytest.raises(InvalidOption, match="health"):
            checks_of(wrong)
    reset_jobs()
    with pytest.raises(InvalidOption, match="health"):
        rs.backfill("wrong", rows=rs.Rows("orders"), set={"total": "1"}, health="yes")  # type: ignore[arg-type]
    sweep = rs.backfill("right", rows=rs.Rows("orders"), set={"total": "1"}, health=[stock_taking, rs.vacuum_idle()])
    assert sweep.describe()["health"] == ["stock_taking", "vacuum"]
    assert rs.backfill("plain", rows=rs.Rows("orders"), set={"total": "1"}).describe()["health"] is None
    reset_jobs()


def test_what_is_asked_for_is_laid_over_what_is_declared() -> None:
    """N-122: limits by signal replace those signals only; functions stay; "off" and "on" are about all."""
    declared = (stock_taking, rs.replica_lag_below("10s"), rs.vacuum_idle())
    assert chosen(declared, None) == declared
    assert chosen(declared, "off") == ()
    assert chosen(declared, "on") == declared
    assert chosen((), "on") == tuple(default_signals())
    asked = asked_of({"replica_lag": "30s", "vacuum": "off", "active_sessions": 20})
    assert asked == {"replica_lag": "30s", "vacuum": "off", "active_sessions": 20}
    assert chosen(declared, asked) == (stock_taking, rs.replica_lag_below("30s"), rs.active_sessions_below(20))
    (twice,) = chosen((), {"batch_times": 2})
    assert twice == rs.batch_times_below(2)
    assert asked_of({"vacuum": None, "replica_lag": {"slow": "1s"}}) == {"vacuum": "off", "replica_lag": {"slow": "1s"}}
    for wrong in ("maybe", {}, {"lag": "10s"}, {"replica_lag": 10}, {"vacuum": "stop"}, {"active_share": 80}, 7):
        with pytest.raises(InvalidOption):
            asked_of(wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replica_lag", "0s"),
        ("replica_lag", {"hold": "10s", "slow": "11s"}),
        ("replica_lag", {"hold": None}),
        ("replica_lag", {"holds": "10s"}),
        ("replica_lag", {"hold": "10s", "ignore": "delayed"}),
        ("replica_lag", {"hold": "10s", "ignore": [1]}),
        ("archive_backlog", "1 gigabyte"),
        ("archive_backlog", 1024),
        ("active_share", "180%"),
        ("active_sessions", 0),
        ("batch_times", 1),
    ],
)
def test_a_limit_that_means_nothing_is_refused(name: str, value: object) -> None:
    """S-008: early, with what would work."""
    with pytest.raises(InvalidOption) as refused:
        limits_of(value, KINDS[name].unit, option=name)
    assert refused.value.fix.startswith(name)


def test_amounts_are_written_as_postgres_writes_them() -> None:
    """D-6: a reason is read by people."""
    assert [shown_size(n) for n in (0, 1023, 1024, 1.5 * 1024**2, GB)] == ["0B", "1.02e+03B", "1kB", "1.5MB", "1GB"]
