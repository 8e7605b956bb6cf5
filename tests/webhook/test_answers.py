"""What a receiver's answers mean: success, failure on the curve, or a stated pause."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.clock import real_monotonic
from rowsweep.errors import (
    DeliveryFailed,
    DeliveryThrottled,
)
from tests.webhook.conftest import Sender
from tests.webhook.receiver import answer, endless, nonsense, reset, stalled, torn
from tests.webhook.sends import Receive, job_of


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_success(sender: Sender, receive: Receive, status: int) -> None:
    """D-33."""
    assert sender.deliver(sender.declare(receive(answer(status)).url)).outcome == "completed"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 400, 401, 404, 429, 500, 503])
def test_anything_else_fails_on_the_curve_and_is_recorded_first(sender: Sender, receive: Receive, status: int) -> None:
    """D-33, S-371: 10 attempts; 429 and 503 too where they state no pause."""
    receiver = receive(answer(status, "Location: /elsewhere"))
    execution = sender.deliver(sender.declare(receiver.url))
    assert execution.outcome == "retried"
    assert isinstance(execution.error, DeliveryFailed)
    assert execution.error.meta == {"endpoint_id": "shop-7", "status": status}
    assert [(kept.status, kept.outcome, kept.error) for kept in sender.ledger.deliveries] == [
        (status, "failed", f"it answered {status}")
    ]
    assert receiver.connections == 1
    assert job_of(sender).max_attempts == 10


def test_a_redirect_is_not_followed(sender: Sender, receive: Receive) -> None:
    """S-369: the signed body goes to no host it was not signed for."""
    elsewhere = receive(answer(200))
    receiver = receive(answer(307, f"Location: {elsewhere.url}"))
    assert isinstance(sender.deliver(sender.declare(receiver.url)).error, DeliveryFailed)
    assert elsewhere.connections == 0


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [(reset, "the connection was reset"), (nonsense, "it answered no HTTP"), (lambda *_: None, "it answered no HTTP")],
    ids=["reset", "no http", "closed"],
)
def test_a_receiver_that_misbehaves_fails_the_attempt(
    sender: Sender, receive: Receive, behaviour: Any, why: str
) -> None:
    """D-33, S-371."""
    execution = sender.deliver(sender.declare(receive(behaviour).url))
    assert isinstance(execution.error, DeliveryFailed)
    assert why in str(execution.error)
    assert [(kept.status, kept.error) for kept in sender.ledger.deliveries] == [(None, why)]


def test_an_unknown_host_is_said_to_be(sender: Sender) -> None:
    """D-33."""
    assert "its host was not found" in str(sender.deliver(sender.declare("http://no-such-host.invalid/")).error)


def test_a_port_where_nobody_listens_refuses(sender: Sender) -> None:
    """D-33."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "refused" in str(sender.deliver(sender.declare(f"http://127.0.0.1:{port}/")).error)


def test_a_certificate_nobody_vouches_for_is_not_talked_to(sender: Sender, receive: Receive, tmp_path: Any) -> None:
    """D-33: over TLS, with whom httpx trusts."""
    receiver = receive(answer(200), tls=self_signed(tmp_path))
    execution = sender.deliver(sender.declare(receiver.url))
    assert "TLS failed" in str(execution.error)
    assert receiver.requests == []


def self_signed(folder: Any) -> Any:
    import ssl
    import subprocess

    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_a_trusted_certificate_is(
    sender: Sender, receive: Receive, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-33: `$SSL_CERT_FILE` names another authority."""
    from rowsweep.webhook import sending

    tls = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    sending._trusted.cache_clear()
    receiver = receive(answer(200), tls=tls)
    try:
        assert sender.deliver(sender.declare(receiver.url)).outcome == "completed"
    finally:
        sending._trusted.cache_clear()


@pytest.mark.parametrize("behaviour", [endless(200), torn(200)], ids=["endless", "torn"])
def test_the_status_decides_whatever_the_body_does(sender: Sender, receive: Receive, behaviour: Any) -> None:
    """D-33: read up to 64 KiB, and not believed."""
    assert sender.deliver(sender.declare(receive(behaviour).url)).outcome == "completed"


def test_a_body_that_never_comes_holds_nobody_up(
    sender: Sender, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-33: seconds, where there is no timeout."""
    from rowsweep.webhook import line

    monkeypatch.setattr(line, "BODY_SECONDS", 0.05)
    began = real_monotonic()
    assert sender.deliver(sender.declare(receive(stalled(500)).url)).outcome == "retried"
    assert [kept.status for kept in sender.ledger.deliveries] == [500]
    assert real_monotonic() - began < 30


PAUSES = [
    (["Retry-After: 120"], 120.0),
    (["Retry-After: Fri, 31 Jan 2025 09:02:00 GMT", "Date: Fri, 31 Jan 2025 09:00:00 GMT"], 120.0),
]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("headers", "pause"), PAUSES, ids=["seconds", "date"])
def test_a_stated_pause_is_kept(
    sender: Sender, receive: Receive, status: int, headers: list[str], pause: float
) -> None:
    """S-374, D-33: throttled, by seconds or by a date relative to the response's own Date."""
    execution = sender.deliver(sender.declare(receive(answer(status, *headers)).url, retry=rs.Retry(jitter=False)))
    assert isinstance(execution.error, DeliveryThrottled)
    assert execution.error.retry_after_seconds == pause
    assert [kept.outcome for kept in sender.ledger.deliveries] == ["throttled"]
    row = job_of(sender)
    assert abs((row.run_at - datetime.now(UTC)).total_seconds() - pause) < 10
    assert row.attempt == 1


def test_a_stated_pause_is_clamped_and_spread(sender: Sender, receive: Receive) -> None:
    """S-374, D-11: by `retry.max_delay`, and only later."""
    receiver = receive(answer(503, "Retry-After: 999999999999999999999"))
    sender.deliver(sender.declare(receiver.url))
    left = (job_of(sender).run_at - datetime.now(UTC)).total_seconds()
    assert 3_590 < left <= 3_600 + 30


@pytest.mark.parametrize(
    "stated",
    ["0", "-5", "soon", "", "1.5", "Fri, 31 Jan 2025 09:00:00 GMT", "Fri, 31 Jan 2025 08:00:00 GMT", "٣"],
)
def test_a_pause_of_nothing_or_of_the_past_is_unstated(sender: Sender, receive: Receive, stated: str) -> None:
    """S-374: on the curve then."""
    receiver = receive(answer(429, f"Retry-After: {stated}", "Date: Fri, 31 Jan 2025 09:00:00 GMT"))
    assert isinstance(sender.deliver(sender.declare(receiver.url)).error, DeliveryFailed)
