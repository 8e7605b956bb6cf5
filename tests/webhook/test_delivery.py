"""Deliveries against a real server: what is sent, what its answers mean, and what is recorded."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import (
    InvalidDeclaration,
)
from rowsweep.webhook import Endpoint, MemoryWebhookLedger, verify_webhook_signature, webhook
from tests.webhook.conftest import SECRET, Sender
from tests.webhook.receiver import answer
from tests.webhook.sends import Receive, job_of


def test_a_delivery_is_a_signed_post_of_compact_json(sender: Sender, receive: Receive) -> None:
    """D-33, S-367, S-368: body, headers, and a signature that stands."""
    receiver = receive(answer(204))
    handle = sender.declare(receiver.url)
    value = {"order": 7, "note": "süß"}
    execution = sender.deliver(handle, value)
    assert (execution.outcome, execution.error) == ("completed", None)
    (request,) = receiver.requests
    row = job_of(sender)
    document = json.loads(request.body)
    assert request.line == "POST /hook?token=t0ken HTTP/1.1"
    assert list(document) == ["id", "event", "at", "data"]
    assert (document["id"], document["event"], document["data"]) == (str(row.id), "order.paid", value)
    assert request.body == json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    assert abs(datetime.fromisoformat(document["at"]) - row.created_at) < timedelta(seconds=1)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"rowsweep/{rs.__version__}"
    assert abs(verify_webhook_signature(request.body, request.headers, SECRET) - datetime.now(UTC)) < timedelta(
        minutes=1
    )
    assert "webhook-signature" not in request.headers
    assert row.result == 204
    (kept,) = sender.ledger.deliveries
    assert (kept.endpoint_id, kept.job_id, kept.event, kept.attempt) == ("shop-7", row.id, "order.paid", 1)
    assert (kept.status, kept.outcome, kept.error) == (204, "delivered", None)
    assert kept.duration_ms >= 0


def test_event_and_data_may_be_made_of_the_input(sender: Sender, receive: Receive) -> None:
    """D-33: and what they make is the same in every attempt, the body's instant included."""
    receiver = receive(answer(500))
    handle = sender.declare(
        receiver.url,
        event=lambda order: f"order.{order['state']}",
        data=lambda order: {"at": datetime(2025, 1, 1, tzinfo=UTC), "order": order["order"]},
        retry=rs.Retry(base="0s", attempts=3),
    )
    sender.deliver(handle, {"order": 7, "state": "paid"})
    sender.attempt()
    first, second = receiver.requests
    assert json.loads(first.body)["event"] == "order.paid"
    assert json.loads(first.body)["data"] == {"at": "2025-01-01T00:00:00Z", "order": 7}
    assert first.body == second.body


@pytest.mark.parametrize(
    ("field", "given"),
    [("endpoint", {"endpoint": "https://shop/"}), ("data", {"data": 5}), ("allow", {"allow": ["10.0.0.1"]}),
     ("tenant", {"tenant": None}), ("connect_timeout", {"connect_timeout": "0s"}), ("colour", {"colour": "red"})],
)  # fmt: skip
def test_a_declaration_that_cannot_be_is_refused(app: rs.App, field: str, given: dict[str, Any]) -> None:
    """S-020, S-367: as for any job."""
    options: dict[str, Any] = {
        "tenant": "none",
        "endpoint": lambda _: Endpoint("a", "https://shop/", "s"),
        "event": "paid",
        "ledger": MemoryWebhookLedger(),
    }
    with pytest.raises((InvalidDeclaration, rs.RowsweepError), match=field):
        webhook("x", **(options | given))


def test_a_webhook_is_a_job(sender: Sender, receive: Receive) -> None:
    """S-007, S-367: a handle with everything that enqueue takes."""
    receiver = receive(answer(200))
    handle = sender.declare(receiver.url, queue="hooks", key=lambda order: str(order["order"]))
    first = handle.enqueue({"order": 7})
    assert handle.enqueue({"order": 7}).id == first.id
    with rs.transaction():
        handle.enqueue({"order": 8})
    assert handle.describe()["queue"] == "hooks"
    assert re.fullmatch(r"<job 'order-paid'>", repr(handle))


@pytest.mark.parametrize("event", [5, None, "", "e" * 201, "\ud800", "order\0paid"])
def test_an_event_s_function_must_answer_the_name_of_one(sender: Sender, receive: Receive, event: Any) -> None:
    """D-33, D-37: what no declaration may say is not sent either; terminal, and said."""
    receiver = receive(answer(200))
    execution = sender.deliver(sender.declare(receiver.url, event=lambda _: event))
    assert execution.outcome == "dead-lettered"
    assert "event must be text" in str(execution.error)
    assert receiver.requests == []
