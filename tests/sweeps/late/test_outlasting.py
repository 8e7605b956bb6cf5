"""An export does not look again: who is open at its end is counted, kept and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep.sweeps.export.passes import ExportPass
from tests.sweeps.field import NOW, Field, fields_of
from tests.sweeps.late.test_look import INSERT, orders_without, writing


def export(folder: Path, **given: Any) -> Any:
    return rs.export_rows("out", rows=rs.Rows("orders"), to=f"{folder}/out", part_rows=4, **given)


@pytest.mark.parametrize("shards", [1, 2])
def test_who_is_open_at_the_end_of_an_export_is_told(
    field: Field, tmp_path: Path, shards: int, caplog: pytest.LogCaptureFixture
) -> None:
    """N-057, N-091: the row is in no part; result, log and views say how many transactions may have such rows."""
    orders_without(field, 3)
    run = export(tmp_path, shards=shards).launch()
    with writing(field, INSERT), field.working(concurrency=4):
        totals = run.wait(timeout="20s")
    assert (totals["rows"], totals["writers"]) == (19, 1)
    (said,) = fields_of(caplog.records, "sweeps.late.unseen")
    assert (said["writers"], said["rows"]) == (1, None)
    assert f"1 open writer unseen: rowsweep sweeps verify {run.run_id}" in repr(run)


def test_who_was_open_is_known_behind_a_crash(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-057: it is of the last part, not of the attempt that comes to the end."""
    orders_without(field, 3)
    seal, failed = ExportPass._seal, list[int]()

    def failing(self: ExportPass, document: dict[str, Any]) -> None:
        if not failed:
            failed.append(1)
            writer.commit()
            raise RuntimeError("once")
        seal(self, document)

    monkeypatch.setattr(ExportPass, "_seal", failing)
    with writing(field, INSERT) as writer:
        assert field.sweep(export(tmp_path, retry=NOW))["writers"] == 1
    assert failed == [1]


def test_without_a_writer_nothing_is_kept_or_said(field: Field, tmp_path: Path) -> None:
    """N-057: who only reads is none."""
    field.orders(5)
    run = export(tmp_path).launch()
    with psycopg.connect(field.dsn) as reader:
        reader.execute("select from orders")
        assert field.finish(run)["writers"] == 0
    assert "sweep:writers" not in field.steps(run)
    assert "late" not in (run.snapshot().options or {})
