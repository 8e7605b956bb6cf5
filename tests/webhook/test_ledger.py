"""The ledger's seam: the memory form, and the Postgres one that docs/webhooks.md shows, as it is written there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from rowsweep.webhook import Delivery, MemoryWebhookLedger, WebhookLedger

DOCUMENT = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
_START = datetime(2025, 1, 31, 9, tzinfo=UTC)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


def documented(dsn: str) -> Iterator[WebhookLedger]:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "docs/webhooks.md", "exec"), names)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for script in blocks("sql"):
            connection.execute(script.encode())
    with ConnectionPool(dsn, min_size=1, max_size=2, open=True) as pool:
        yield names["PostgresWebhookLedger"](pool)


@pytest.fixture(params=["memory", "documented"])
def ledger(request: pytest.FixtureRequest) -> Iterator[WebhookLedger]:
    """A ledger of each form."""
    if request.param == "memory":
        yield MemoryWebhookLedger()
    else:
        yield from documented(request.getfixturevalue("dsn"))


def delivery(number: int, outcome: Any, endpoint: str = "a") -> Delivery:
    return Delivery(
        endpoint_id=endpoint,
        job_id=uuid.uuid4(),
        event="paid",
        attempt=1,
        at=_START + timedelta(seconds=number),
        duration_ms=12,
        status=None if outcome == "failed" else 200,
        outcome=outcome,
        error="the connection was reset" if outcome == "failed" else None,
    )


def test_failures_in_a_row_are_counted_for_each_endpoint(ledger: WebhookLedger) -> None:
    """S-371, S-372: since the last success; a throttled attempt is neither."""
    counts = []
    outcomes = ["failed", "throttled", "failed", "delivered", "failed", "throttled", "failed", "failed"]
    for number, outcome in enumerate(outcomes):
        ledger.record(delivery(number, outcome))
        ledger.record(delivery(number, "failed", "b"))
        counts.append(ledger.consecutive_failures("a"))
    assert counts == [1, 1, 2, 0, 1, 1, 2, 3]
    assert ledger.consecutive_failures("b") == 8
    assert ledger.consecutive_failures("unknown") == 0


def test_an_endpoint_is_switched_off_once(ledger: WebhookLedger) -> None:
    """S-372, S-378."""
    assert not ledger.is_disabled("a")
    ledger.disable("a", "gone")
    ledger.disable("a", "gone again")
    assert ledger.is_disabled("a")
    assert not ledger.is_disabled("b")
