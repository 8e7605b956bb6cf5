"""How Postgres goes about a purge's statements: along the index, and by the rows' addresses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowsweep.sweeps.purge.passes import PurgePass
from rowsweep.sweeps.purge.targets.setup import TargetSetup, check_target
from rowsweep.sweeps.purge.work import DeleteWork
from tests.sweeps.field import Field
from tests.sweeps.purge.events import declare, left, make_events, old_events

AT = "2026-11-29T00:00:00+00:00"


def nodes(plan: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Answer each node of a plan with the relation or index it reads."""
    here = [(str(plan["Node Type"]), plan.get("Index Name") or plan.get("Relation Name"))]
    return here + [node for child in plan.get("Plans", ()) for node in nodes(child)]


def setup_of(field: Field, **target: Any) -> tuple[Any, TargetSetup]:
    """Open a connection of a pass and set a target up on it."""
    purge = declare(old_events(**target))
    held = purge.held_on(field.app, None, None)
    with held.transaction():
        setup = check_target(held.connection, old_events(**target), AT)
    for name in ("enable_seqscan", "enable_bitmapscan"):
        held.connection.execute(f"set {name} = off")
    return held, setup


def explained(held: Any, statement: Any, values: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Plan a statement as a pass has it planned: once, whatever the values."""
    text = statement.as_string(held.connection)
    row = held.connection.execute(f"explain (format json) {text}", values).fetchone()
    found = row[0] if not isinstance(row[0], str) else json.loads(row[0])
    return nodes(found[0]["Plan"])


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("analyzed", [False, True])
def test_pages_are_found_and_deleted_along_the_index(field: Field, started: bool, analyzed: bool) -> None:
    """D-8: with statistics or without; no scan of the table, no sort of all that is due."""
    make_events(field, 20_000, 20_000)
    if analyzed:
        field.sql("analyze events")
    held, setup = setup_of(field)
    values = {"rs_cutoff": setup.cutoff, "rs_c0": setup.cutoff, "rs_c1": "1"}
    values |= {"rs_u0": setup.cutoff, "rs_u1": "9"}
    of = setup.statements()
    for statement in (
        of.ends(1_000, 16, started=started),
        of.last_end(started=started),
        of.delete_to(started=started),
        of.search(1_000, 1_000, started=started),
    ):
        found = explained(held, statement, values)
        assert ("Index Scan", "events_created_at_idx") in found
        assert not [node for node in found if node[0] == "Seq Scan"]
    held.release()


def test_many_rows_of_one_value_are_told_by_the_statistics(field: Field) -> None:
    """D-8: a page at a time would sort them all again for each."""
    make_events(field, 10_000, 10)
    held, setup = setup_of(field)
    held.release()
    assert setup.is_plain, "without statistics a timestamp is taken to be one"
    field.sql("analyze events")
    held, setup = setup_of(field)
    held.release()
    assert setup.aged.ties == pytest.approx(1, abs=5)
    assert setup.is_plain
    field.sql("update events set created_at = date_trunc('year', created_at)")
    field.sql("analyze events")
    held, setup = setup_of(field)
    held.release()
    assert (setup.aged.ties or 0) > 5_000
    assert not setup.is_plain


def test_the_quick_statement_is_used_until_a_row_is_in_its_way(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8."""
    make_events(field, 60, 10)
    ways: list[str] = []
    quickly, carefully = DeleteWork.send, DeleteWork._carefully

    def noted(name: str, way: Any) -> Any:
        def call(self: DeleteWork, *given: Any) -> Any:
            ways.append(name)
            return way(self, *given)

        return call

    monkeypatch.setattr(DeleteWork, "send", noted("quick", quickly))
    monkeypatch.setattr(DeleteWork, "_carefully", noted("careful", carefully))
    field.sql("create table notes (event_id bigint references events); insert into notes values (25)")
    recovered: list[int] = []
    recover = PurgePass._recover

    def recovering(self: PurgePass, error: Exception) -> None:
        recovered.append(1)
        recover(self, error)

    monkeypatch.setattr(PurgePass, "_recover", recovering)
    result = field.sweep(declare(batch_rows=20, adapt=False))
    assert result["removed"] == {"events": 59}
    assert left(field) == 11
    assert len(recovered) == 1
    quick = ways.count("quick")
    assert ways == ["quick"] * quick + ["careful"] * (len(ways) - quick)
    assert 1 <= quick <= 3
