"""What is said of a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rowsweep.show.board.tables import runs_table
from rowsweep.show.html.run import snapshot_html
from rowsweep.show.plain import details, snapshot_line
from rowsweep.show.tables.sweeps import ledger_table
from rowsweep.show.terminal import SweepView
from rowsweep.show.words import facts
from tests.show.snapshots import drawn, snapshot


def test_an_estimate_is_marked_as_one() -> None:
    """N-075."""
    assert facts.rows_words(snapshot()) == "823,000 of ≈ 2,000,000 rows"
    assert facts.percent_words(snapshot()) == "≈ 41 %"


def test_rows_past_the_estimate_are_at_least() -> None:
    """N-075."""
    past = snapshot(total=823_000, total_is="at least", percent=99.0)
    assert facts.rows_words(past) == "823,000 of at least 823,000 rows"


def test_an_unknown_total_is_said_to_be_unknown_and_has_no_percentage() -> None:
    """N-075, N-076."""
    unknown = snapshot(total=None, total_is="unknown", percent=None, eta_seconds=None)
    assert facts.rows_words(unknown) == "823,000 rows, total unknown"
    assert facts.percent_words(unknown) == ""
    assert "ETA unknown" in facts.facts(unknown)


def test_what_a_run_that_is_done_leaves_open_is_said_in_every_view() -> None:
    """N-057: who outlived the wait, and rows that cannot be told; in short where there is little room."""
    told = {"late": {"rows": 3, "writers": 2, "unsure": 1_200, "proved": False}, "rate": "5/s"}
    done = snapshot(status="done", words="done", options=told)
    assert facts.trouble(done) == f"2 open writers unseen, 1,200 in doubt: rowsweep sweeps verify {done.run_id}"
    assert ledger_table([done]).rows[0][2].text.endswith("done, 2 open writers unseen, 1,200 in doubt")
    assert "2 open writers unseen" in "".join(drawn(SweepView(done)))
    assert "2 open writers unseen" in snapshot_html(done)
    assert dict(details(done))["options"] == '{"rate": "5/s"}'
    unknown = snapshot(status="done", words="done", options={"late": {"writers": 0, "unsure": None}})
    assert facts.trouble(unknown) == f"rows in doubt: rowsweep sweeps verify {unknown.run_id}"
    for nothing in ({"late": {"rows": 3, "writers": 0, "unsure": 0}}, {"late": "x"}, None):
        assert facts.trouble(snapshot(status="done", words="done", options=nothing)) is None


def test_what_the_governor_did_is_said_and_its_record_is_no_option() -> None:
    """D-6, N-122: how long, by which signal, what each says, and what somebody asked for instead."""
    governor = {
        "held": {"weather": 5, "replica_lag": 130.4},
        "slowed": {"vacuum": 4.0},
        "signals": {
            "vacuum": {"is": "slow", "says": "the vacuum of public.orders"},
            "replica_lag": {"is": "ok"},
            "archive_backlog": {"is": "unknown", "says": "the server archives no WAL"},
        },
    }
    health = {"replica_lag": "30s", "active_sessions": {"slow": 5, "hold": 9}}
    governed = snapshot(options={"governor": governor, "health": health, "tuned": {"by": "ann", "at": "x"}})
    said = facts.facts(governed)
    assert "held back 2 min 15 s" in said
    assert "health replica_lag 30s, active_sessions slow 5 and hold 9 (tuned by ann)" in said
    assert facts.trouble(governed) == "slowed down by the vacuum of public.orders"
    told = dict(details(governed))
    assert told["held back"] == "2 min 10 s by replica_lag, 5.0 s by weather"
    assert told["slowed down"] == "4.0 s by vacuum"
    assert told["health"] == (
        "vacuum slow: the vacuum of public.orders; replica_lag ok; archive_backlog unknown: the server archives no WAL"
    )
    assert "governor" not in told["options"]
    holding = {**governor, "signals": {"replica_lag": {"is": "hold", "says": "replica 'r'"}}}
    for words, waiting_for, state in (
        ("running", "replica 'r'", "held ≈ 41 %"),
        ("running", None, "running ≈ 41 %"),
        ("stalled", "replica 'r'", "stalled ≈ 41 %"),
    ):
        table = ledger_table([snapshot(options={"governor": holding}, words=words, waiting_for=waiting_for)])
        assert table.rows[0][2].text == state
        run = snapshot(options={"governor": holding}, words=words, waiting_for=waiting_for)
        assert dict(details(run))["state"] == state
        assert snapshot_line(run).startswith(f"order-totals: {state.split()[0]}  ")
        assert runs_table([run]).rows[0][1].text == state
        assert state.split()[0] in snapshot_html(run)
    slowed = snapshot(options={"governor": governor}, waiting_for="rate")
    assert facts.trouble(slowed) == "slowed down by the vacuum of public.orders; waiting for rate"
    done = snapshot(options={"governor": governor, "health": "off"}, status="done", words="done")
    assert facts.trouble(done) is None
    assert "held back 2 min 15 s" in facts.facts(done)
    told = dict(details(done))
    assert told["held back"] == "2 min 10 s by replica_lag, 5.0 s by weather"
    assert told["health"] == "heeded 2 of 3 signals"
    assert "health" not in dict(details(snapshot(status="done", words="done", options={"governor": {"held": {}}})))
    unread = {"signals": {"vacuum": {"is": "unknown", "says": "no luck"}}}
    ended = snapshot(status="done", words="done", options={"governor": unread})
    assert dict(details(ended))["health"] == "heeded none of 1 signal: no luck"
    assert not any(said.startswith("health") for said in facts.facts(done))
    odd_ones: list[Any] = ["x", {"held": 1, "signals": {"a": 1}}, {"signals": []}, None]
    for odd in odd_ones:
        assert facts.trouble(snapshot(options={"governor": odd})) is None
        assert "options" not in dict(details(snapshot(options={"governor": odd})))


def test_a_finished_sweep_says_what_it_took_and_no_eta() -> None:
    done = snapshot(status="done", words="done", rows=2_000_000, total_is="exact", percent=100.0)
    assert facts.facts(done) == ["2,000,000 rows", "235 k/s", "400 batches", "8.5 s at work"]
    assert "1 batch" in facts.facts(replace(done, batches=1))


@pytest.mark.parametrize(("active", "expected"), [(0.2, None), (2.0, 411_500.0)])
def test_before_there_is_a_recent_rate_the_mean_is_shown_once_it_means_something(
    active: float, expected: float | None
) -> None:
    assert facts.shown_rate(snapshot(rows_per_second=None, active_seconds=active)) == expected


def test_the_share_of_the_bar_never_passes_one() -> None:
    """D-40's progress never goes beyond 100 %."""
    assert facts.shown_share(snapshot(percent=250.0)) == 1.0


def test_a_paused_sweep_does_not_promise_a_time_of_arrival() -> None:
    assert "12 s of work left" in facts.facts(snapshot(status="paused", words="paused"))


def test_a_declared_rate_is_said_until_somebody_asks_for_another() -> None:
    """D-6, N-122: and not as an option that somebody gave."""
    declared = snapshot(options={"declared_rate": "1000/s"})
    assert "at most 1000/s" in facts.facts(declared)
    assert "options" not in dict(details(declared))
    tuned = {"declared_rate": "1000/s", "rate": "none", "tuned": {"by": "ann", "at": "now"}}
    assert "no rate limit (tuned by ann)" in facts.facts(snapshot(options=tuned))
    assert not any("1000/s" in said for said in facts.facts(snapshot(options=tuned)))


def test_figures_that_are_older_than_they_should_be_say_so_and_promise_no_arrival() -> None:
    """N-074, N-076: after a kill, for as long as the lease lasts."""
    quiet = snapshot(quiet_seconds=14.2)
    assert facts.trouble(quiet) == "no figures for 14 s"
    assert "12 s of work left" in facts.facts(quiet)
    assert "no figures for 14 s" in snapshot_line(quiet)
    assert any("no figures for 14 s" in line for line in drawn(SweepView(quiet)))
    assert facts.trouble(snapshot(quiet_seconds=14.2, waiting_for="rate")) == "waiting for rate"


def test_an_error_is_said_in_one_clean_line_with_its_code_once() -> None:
    """N-104."""
    failed = snapshot(status="failed", last_error="X_A: bad\nline", last_error_code="X_A")
    assert facts.trouble(failed) == "X_A: bad line"
    typed = snapshot(status="failed", last_error="Bad: X_A: worse", last_error_code="X_A")
    assert facts.trouble(typed) == "Bad: X_A: worse"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"attempt": 1}, None),
        ({"attempt": 4}, "attempt 4 of 20"),
        ({"attempt": 4, "max_attempts": None}, "attempt 4"),
        ({"attempt": 1, "words": "retrying at 03:04:05 UTC"}, "attempt 1 of 20 failed"),
        ({"attempt": 4, "status": "failed", "words": "failed"}, None),
    ],
)
def test_an_attempt_behind_the_first_is_said(changed: dict[str, object], words: str | None) -> None:
    """N-074: also while the run waits for its next one."""
    assert facts.attempt_words(snapshot(**changed)) == words
    assert (words in facts.facts(snapshot(**changed))) == (words is not None)


def test_a_sweep_that_waits_says_for_what() -> None:
    assert facts.trouble(snapshot(waiting_for="replica lag 12 s")) == "waiting for replica lag 12 s"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "waiting for rate"),
        ({"last_error": "bad"}, "bad; waiting for rate"),
        ({"last_error": "bad", "words": "retrying at 03:04:05 UTC"}, "bad"),
        ({"words": "waiting for a worker"}, None),
        ({"words": "stalled"}, None),
        ({"words": "stalled", "waiting_for": "lock timeout"}, "waiting for lock timeout"),
        ({"words": "stalled", "waiting_for": "lock timeout", "last_error": "bad"}, "bad"),
        ({"words": "paused", "status": "paused"}, None),
        ({"words": "paused", "status": "paused", "options": {"paused": {"by": "ann"}}}, "paused by ann"),
        ({"words": "failed", "status": "failed", "last_error": "bad"}, "bad"),
        ({"words": "pausing"}, "waiting for rate"),
    ],
)
def test_what_is_wrong_is_said_before_the_rate_that_is_kept(changed: dict[str, object], words: str | None) -> None:
    """N-102: a rate is no trouble, and of a run that nobody works it says nothing."""
    assert facts.trouble(snapshot(**({"waiting_for": "rate"} | changed))) == words


@pytest.mark.parametrize(
    ("words", "tone"),
    [("done", "good"), ("failed", "bad"), ("stalled", "bad"), ("retrying at 03:04", "warn"), ("anything", "plain")],
)
def test_what_needs_somebody_stands_out(words: str, tone: str) -> None:
    assert facts.tone(words) == tone


def test_a_purge_removes_its_rows() -> None:
    """N-075: nothing is written."""
    assert dict(details(snapshot(kind="purge")))["removed"] == "823,000 rows"
    assert "Removed" in snapshot_html(snapshot(kind="purge"))
