"""Snapshots for the tests of the views."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

from rowsweep.sweeps.snapshot import Snapshot

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def snapshot(**changed: Any) -> Snapshot:
    """Answer a running sweep's snapshot at 41 %, with some of it changed."""
    fields: dict[str, Any] = {
        "run_id": "01998f0a-1b2c-7d3e-8f40-123456789abc",
        "name": "order-totals",
        "kind": "backfill",
        "status": "running",
        "words": "running",
        "rows": 823_000,
        "written": 823_000,
        "batches": 400,
        "total": 2_000_000,
        "total_is": "estimate",
        "percent": 41.15,
        "rows_per_second": 96_432.1,
        "eta_seconds": 12.2,
        "active_seconds": 8.5,
        "batch_rows": 2073.2,
        "batch_ms": 21.4,
        "waiting_for": None,
        "attempt": 1,
        "max_attempts": 20,
        "retry_at": None,
        "rejected_rows": 0,
        "last_error": None,
        "last_error_code": None,
        "launched_by": "user:ann@host",
        "environment": "development",
        "app_version": None,
        "checksum": "ab" * 32,
        "input": None,
        "options": {},
        "samples": (),
        "started_at": AT,
        "updated_at": AT,
        "finished_at": None,
    }
    return Snapshot(**{**fields, **changed})


def drawn(view: RenderableType, width: int = 100) -> list[str]:
    """Answer the lines that a terminal of this width shows, without colour."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get().splitlines()
