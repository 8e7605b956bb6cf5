"""`rowsweep sweeps`, `ledger` and `watch` over a real database."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest

from tests.cli.command_line import CommandLine, fill, write_app


@pytest.fixture
def items(rowsweep: CommandLine, dsn: str) -> CommandLine:
    fill(dsn, 500)
    return rowsweep


def test_what_is_declared_is_listed_with_what_became_of_it(items: CommandLine) -> None:
    """S-199, D-4: applied, pending, changed, live."""
    states = {entry["name"]: entry["state"] for entry in items("sweeps", "ls", "--json").json}
    assert states == {"broken": "pending", "outside": "pending", "totals": "pending"}
    assert items("run", "totals").code == 0
    items("sweeps", "launch", "broken")
    listed = items("sweeps", "ls")
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["broken", "live", "items"],
        ["outside", "pending", "items"],
        ["totals", "applied", "items"],
    ]
    assert [entry["name"] for entry in items("sweeps", "ls", "--status", "pending", "--json").json] == ["outside"]
    assert [entry["name"] for entry in items("sweeps", "ls", "--limit", "2", "--json").json] == ["broken", "outside"]


def test_a_sweep_whose_declaration_changed_since_is_listed_so(items: CommandLine) -> None:
    assert items("run", "totals").code == 0
    write_app(
        Path.cwd(), 'import rowsweep as rs\nt = rs.backfill("totals", rows=rs.Rows("items"), set={"total": "3"})\n'
    )
    (entry,) = items("sweeps", "ls", "--json").json
    assert entry["state"] == "changed"
    assert entry["last"]["rows"] == 500
    refused = items("run", "totals", "--json")
    assert refused.code == 1
    assert json.loads(refused.err)["code"] == "X_BACKFILL_CHANGED"


def test_a_preview_shows_before_and_after_and_changes_nothing(items: CommandLine, dsn: str) -> None:
    """N-090."""
    shown = items("sweeps", "preview", "totals", "--rows", "3")
    assert shown.code == 0
    assert shown.out.splitlines()[0].split()[:2] == ["id", "price"]
    assert len(shown.out.splitlines()) == 4
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*) from items where total is not null").fetchone() == (0,)


def test_a_preview_puts_each_changed_column_beside_what_it_was_and_marks_it(items: CommandLine) -> None:
    """N-090."""
    lines = items("sweeps", "preview", "totals", "--rows", "2").out.splitlines()
    titles = lines[0].split()
    assert titles[titles.index("total") + 1] == "total_after"
    assert "→ 2" in lines[1]


def test_a_handler_s_bug_in_a_preview_is_shown_by_its_own_line(items: CommandLine) -> None:
    """S-012, N-090."""
    refused = items("sweeps", "preview", "broken")
    assert refused.code == 1
    assert "raised ValueError: no such" in refused.err
    assert re.search(r"at: .*app\.py:\d+ in broken", refused.err)
    assert len(refused.err.splitlines()) < 6
    assert json.loads(items("sweeps", "preview", "broken", "--json").err)["code"] == "X_SWEEP_FAILED"


def test_a_preview_that_could_act_elsewhere_needs_the_flag(items: CommandLine) -> None:
    """N-091."""
    refused = items("sweeps", "preview", "outside", "--input", "7", "--json")
    assert json.loads(refused.err)["code"] == "X_SWEEP_PREVIEW_UNSAFE"
    assert items("sweeps", "preview", "outside", "--input", "7", "--allow-effects").code == 0


def test_a_launched_run_is_found_by_id_prefix_and_name(items: CommandLine) -> None:
    """N-106."""
    launched = items("sweeps", "launch", "totals", "--json").json
    run_id = launched["run_id"]
    assert launched["words"] == "waiting for a worker"
    for run in (run_id, run_id[:18], "totals"):
        assert items("sweeps", "show", run, "--json").json["run_id"] == run_id
    text = items("sweeps", "show", "totals").out
    assert f"run          {run_id}" in text
    assert items("sweeps", "show", "no-such-run").code == 1


def test_a_run_is_paused_resumed_and_cancelled(items: CommandLine) -> None:
    """N-079, N-082."""
    items("sweeps", "launch", "totals")
    assert items("sweeps", "pause", "totals", "--reason", "on call", "--json").json["words"] == "paused"
    shown = items("sweeps", "show", "totals").out
    assert re.search(r"trouble +paused by \S+: on call\n", shown)
    assert items("sweeps", "resume", "totals", "--json").json["words"] == "waiting for a worker"
    assert "trouble" not in items("sweeps", "show", "totals").out
    assert items("sweeps", "cancel", "totals").out.startswith("totals: cancelled")
    refused = items("sweeps", "pause", "totals", "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "X_SWEEP_NOT_LIVE")
    assert items("sweeps", "cancel", "totals").code == 0
    assert items("run", "totals").code == 0
    refused = items("sweeps", "cancel", "totals", "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "X_JOB_NOT_CANCELLABLE")


def test_a_live_run_is_tuned(items: CommandLine) -> None:
    """N-122: shown with who asked."""
    items("sweeps", "launch", "totals", "--rate", "10/s", "--batch-rows", "5", "--delay", "1h")
    assert "at most 10/s" in items("sweeps", "show", "totals").out
    tuned = items("sweeps", "tune", "totals", "--rate", "20/s", "--json").json["options"]
    assert (tuned["rate"], tuned["batch_rows"]) == ("20/s", 5)
    assert "at most 20/s (tuned by " in items("sweeps", "show", "totals").out
    nothing = items("sweeps", "tune", "totals")
    assert (nothing.code, "--rate, --batch-rows or --health" in nothing.err) == (2, True)
    assert items("sweeps", "tune", "totals", "--rate", "fast").code == 1


def test_a_server_of_ones_own_is_heeded_unasked(items: CommandLine) -> None:
    """D-6: the default signals; what this server has not is unknown, told apart, and stops nothing."""
    assert items("run", "totals").code == 0
    signals = items("sweeps", "show", "totals", "--json").json["options"]["governor"]["signals"]
    assert signals["replica_lag"] == {"is": "unknown", "says": "no standby is connected"}
    assert signals["archive_backlog"] == {"is": "unknown", "says": "the server archives no WAL"}
    known = sum(signal["is"] != "unknown" for signal in signals.values())
    assert re.search(rf"health +heeded {known} of {len(signals)} signals\n", items("sweeps", "show", "totals").out)


def test_the_health_that_a_live_run_heeds_is_tuned(items: CommandLine) -> None:
    """N-122: off, on, or limits by signal; what means nothing is refused by name."""
    items("sweeps", "launch", "totals", "--delay", "1h")
    assert items("sweeps", "tune", "totals", "--health", "off", "--json").json["options"]["health"] == "off"
    assert "health off (tuned by " in items("sweeps", "show", "totals").out
    limits = "replica_lag=30s, vacuum=off,active_sessions=40,batch_times=2.5"
    told = items("sweeps", "tune", "totals", "--health", limits, "--json").json["options"]["health"]
    assert told == {"replica_lag": "30s", "vacuum": "off", "active_sessions": 40, "batch_times": 2.5}
    shown = items("sweeps", "show", "totals").out
    assert "health vacuum off, " in shown
    assert "replica_lag 30s" in shown
    assert items("sweeps", "tune", "totals", "--health", "replica_lag").code == 2
    refused = items("sweeps", "tune", "totals", "--health", "lag=30s", "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "X_OPTION_INVALID")


@pytest.mark.slow
def test_rejected_rows_are_listed_and_tried_again(items: CommandLine, dsn: str) -> None:
    """N-086, N-106: by the sweep's name or a run's id, as a table or as one document."""
    aside = """
import rowsweep as rs
t = rs.backfill("totals", rows=rs.Rows("items"), set={"total": "price / (writes - 1)"}, on_error="set-aside")
"""
    write_app(Path.cwd(), aside)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update items set writes = 1 where id in (7, 40)")
        assert items("sweeps", "rejected", "totals").code == 1
        assert items("run", "totals").code == 0
        listed = items("sweeps", "rejected", "totals")
        assert [line.split()[0] for line in listed.out.splitlines()] == ["key", "7", "40"]
        assert "DivisionByZero: division by zero" in listed.out
        (document, _) = items("sweeps", "rejected", "totals", "--json").json
        assert (document["key"], document["error"]) == ("7", "DivisionByZero: division by zero")
        assert "done, 2 rows set aside" in items("ledger").out
        assert "2 rows set aside" in items("sweeps", "show", "totals").out
        connection.execute("update items set writes = 3 where id = 7")
        first = items("ledger", "--json").json[0]["run_id"]
        launched = items("sweeps", "retry-rejected", "totals", "--json")
        assert launched.json["options"] == {"retry_of": first}
        applied = items("run", "totals")
        assert (applied.code, "tries the rows again that it set aside" in applied.err) == (1, True)
        assert items("sweeps", "verify", "totals", "--json").json["run_id"] == first
        assert "attached" in items("sweeps", "retry-rejected", first).err
        assert f"those left: rowsweep sweeps rejected {first}" in items("sweeps", "rejected", "totals").err
        refused = json.loads(items("sweeps", "retry-rejected", "totals", "--json").err)
        assert (refused["code"], refused["fix"]) == ("X_SWEEP_NOT_LIVE", f"rowsweep sweeps rejected {first}")
        more = ("--force", "--on-error", "set-aside", "--max-rejected", "5", "--json")
        kept = items("sweeps", "launch", "totals", *more).json["options"]
        assert kept == {"force": True, "on_error": "set-aside", "max_rejected": 5}
        assert items("sweeps", "launch", "totals", "--on-error", "skip").code == 2


def test_a_run_is_verified_with_an_exit_code_for_scripts(items: CommandLine, dsn: str) -> None:
    """N-057, N-106: 0 where it is complete, 1 where a row is due, 3 where that cannot be told."""
    code = """
import rowsweep as rs
t = rs.backfill("totals", rows=rs.Rows("items", where="total is null"), set={"total": "price * 2"})
b = rs.backfill("prices", rows=rs.Rows("items"), set={"price": "price + 1"})
"""
    write_app(Path.cwd(), code)
    assert (items("run", "totals").code, items("run", "prices").code) == (0, 0)
    complete = items("sweeps", "verify", "totals")
    assert (complete.code, ": complete. Due: 0; matching: 0." in complete.out) == (0, True)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update items set total = null where id = 7")
    due = items("sweeps", "verify", "totals", "--json")
    assert (due.code, due.json["due"], due.json["matching"], due.json["is_complete"]) == (1, 1, 1, False)
    assert "\n  fix: rowsweep run totals --force" in items("sweeps", "verify", "totals").out
    unknown = items("sweeps", "verify", "prices", "--timeout", "1m")
    assert (unknown.code, "cannot be told" in unknown.out) == (3, True)
    assert items("sweeps", "verify", "nothing").code == 1


def test_only_a_purge_is_confirmed(items: CommandLine) -> None:
    for command in (("sweeps", "launch"), ("run",)):
        refused = items(*command, "totals", "--confirm", "0.5")
        assert (refused.code, "is no purge" in refused.err) == (2, True)


def test_the_ledger_is_listed_newest_first_and_filtered(items: CommandLine) -> None:
    assert items("ledger").out == "No sweep has run here yet.\n"
    assert items("ledger", "--json").json == []
    items("run", "totals")
    items("sweeps", "launch", "broken")
    assert [run["name"] for run in items("ledger", "--json").json] == ["broken", "totals"]
    assert [run["name"] for run in items("ledger", "--status", "done", "--json").json] == ["totals"]
    assert items("ledger", "--limit", "0", "--json").json == []
    (line,) = items("ledger", "--name", "totals").out.splitlines()[1:]
    assert "totals" in line
    assert "done" in line


def test_watching_a_finished_run_shows_it_once(items: CommandLine) -> None:
    """N-106."""
    items("run", "totals")
    assert items("watch").out.startswith("totals: done  100 %  500 rows")
    (line,) = items("watch", "totals", "--json").out.splitlines()
    assert json.loads(line)["rows"] == 500


def test_watching_where_nothing_has_run_is_refused(items: CommandLine) -> None:
    refused = items("watch", "--json")
    assert json.loads(refused.err)["code"] == "X_SWEEP_NOT_FOUND"


def test_steering_needs_no_code_that_imports(items: CommandLine) -> None:
    """A broken file must not keep an operator from cancelling."""
    items("sweeps", "launch", "totals")
    write_app(Path.cwd(), "import no_such_module")
    assert items("sweeps", "cancel", "totals").code == 0
    assert items("ledger").code == 0
    refused = items("sweeps", "ls")
    assert refused.code == 1
    assert "at: backfills/app.py:1" in refused.err


def test_the_environment_can_be_given(items: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-40, D-4."""
    monkeypatch.setenv("ROWSWEEP_ENV", "development")
    assert items("sweeps", "launch", "totals", "--env", "staging", "--json").json["environment"] == "staging"
