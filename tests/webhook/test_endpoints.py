"""Where a delivery goes: switched off, asked anew at each attempt, never shown, and out of reach inside the network."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import (
    DeliveryFailed,
    EndpointDisabled,
    InvalidOption,
)
from rowsweep.jobs.registry import reset_jobs
from rowsweep.webhook import Endpoint, public_addresses, verify_webhook_signature
from tests.webhook.conftest import Sender
from tests.webhook.receiver import answer, nonsense, reset
from tests.webhook.sends import Receive, job_of


def test_410_switches_the_endpoint_off(sender: Sender, receive: Receive) -> None:
    """D-33: recorded, disabled, terminal; and the next delivery opens no socket and is not recorded."""
    receiver = receive(answer(410))
    handle = sender.declare(receiver.url)
    execution = sender.deliver(handle)
    assert execution.outcome == "dead-lettered"
    assert isinstance(execution.error, EndpointDisabled)
    assert [kept.status for kept in sender.ledger.deliveries] == [410]
    assert list(sender.ledger.disabled) == ["shop-7"]
    again = sender.deliver(handle)
    assert (again.outcome, isinstance(again.error, EndpointDisabled)) == ("dead-lettered", True)
    assert (receiver.connections, len(sender.ledger.deliveries)) == (1, 1)
    sender.ledger.enable("shop-7")
    sender.deliver(handle)
    assert receiver.connections == 2


def test_an_endpoint_that_says_so_itself_is_off(sender: Sender, receive: Receive) -> None:
    """S-372."""
    receiver = receive(answer(200))
    assert isinstance(sender.deliver(sender.declare(receiver.url, disabled=True)).error, EndpointDisabled)
    assert receiver.connections == 0


def test_failures_in_a_row_switch_the_endpoint_off(sender: Sender, receive: Receive) -> None:
    """S-372, S-373: a success between them counts anew, a pause counts neither way, and nobody enables it again."""
    receiver = receive(answer(500))
    handle = sender.declare(receiver.url, disable_after=3, retry=rs.Retry(attempts=1))
    for behaviour in (answer(500), answer(500), answer(200), answer(500), answer(503, "Retry-After: 9"), answer(500)):
        receiver.behaviour = behaviour
        sender.deliver(handle)
        assert sender.ledger.disabled == {}
    receiver.behaviour = answer(500)
    assert isinstance(sender.deliver(handle).error, rs.RowsweepError)
    assert "3 failures in a row" in sender.ledger.disabled["shop-7"]
    assert receiver.connections == 7
    sender.deliver(handle)
    assert receiver.connections == 7


def test_failures_never_switch_it_off_where_that_is_not_wanted(sender: Sender, receive: Receive) -> None:
    """S-372: `disable_after=None`."""
    handle = sender.declare(receive(answer(500)).url, disable_after=None, retry=rs.Retry(attempts=1))
    for _ in range(25):
        sender.deliver(handle)
    assert sender.ledger.disabled == {}


def test_the_endpoint_is_asked_at_each_attempt(sender: Sender, receive: Receive) -> None:
    """D-33, N-100: a new URL and a new secret count at once; while two stand, either verifies."""
    old, new = receive(answer(500)), receive(answer(200))
    endpoints = [Endpoint("shop-7", old.url, ["first"]), Endpoint("shop-7", new.url, ["first", "second"])]
    handle = sender.declare("", endpoint=lambda _: endpoints.pop(0), retry=rs.Retry(base="0s"))
    sender.deliver(handle)
    assert sender.attempt().outcome == "completed"
    request = new.requests[0]
    for secret in ("first", "second"):
        verify_webhook_signature(request.body, request.headers, secret)


def test_neither_url_nor_secret_is_stored_shown_or_logged(
    sender: Sender, receive: Receive, caplog: pytest.LogCaptureFixture
) -> None:
    """S-370: row, error, record and log lines, for every way of failing."""
    caplog.set_level(0, "rowsweep")
    receiver = receive(answer(500, body=b"your secret is s3cret"))
    handle = sender.declare(receiver.url, secrets=["s3cret"], retry=rs.Retry(base="0s", attempts=5))
    sender.deliver(handle)
    for behaviour in (reset, nonsense, answer(503, "Retry-After: 1")):
        receiver.behaviour = behaviour
        sender.attempt()
    row = job_of(sender)
    fields = [record.__dict__.get("fields") for record in caplog.records]
    said = f"{row} {sender.ledger.deliveries} {fields} {handle.describe()} {row.last_error}"
    assert row.last_error is not None
    assert len(sender.ledger.deliveries) == 4
    for hidden in ("s3cret", "t0ken", str(receiver.port), "127.0.0.1"):
        assert hidden not in said
    endpoint = Endpoint("shop-7", receiver.url, "s3cret")
    assert repr(endpoint) == "Endpoint(id='shop-7', disabled=False)"


@pytest.mark.parametrize(
    "given",
    [{"url": "ftp://shop/"}, {"url": "https://"}, {"url": "https://me:s3cret@shop/"}, {"url": "http://shop:99999/"},
     {"url": "https://shop/#s3cret"}, {"url": "https://shop/\nx"}, {"secrets": []}, {"secrets": [""]}, {"id": ""}],
)  # fmt: skip
def test_an_endpoint_that_cannot_be_is_refused_without_showing_it(given: dict[str, Any]) -> None:
    """S-370, D-37."""
    with pytest.raises(InvalidOption) as refused:
        Endpoint(**({"id": "shop-7", "url": "https://shop/", "secrets": ["s3cret"]} | given))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_inside_of_the_network_is_out_of_reach(
    sender: Sender, receive: Receive, family: socket.AddressFamily
) -> None:
    """The guard: nothing is connected to, and the record does not say where it leads."""
    receiver = receive(answer(200), family=family)
    execution = sender.deliver(sender.declare(receiver.url, allow=public_addresses))
    assert isinstance(execution.error, DeliveryFailed)
    assert "its address is not one that may be connected to" in str(execution.error)
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "[::1]", "0", "[64:ff9b::7f00:1]"]
)
def test_no_spelling_of_an_address_gets_around_the_guard(sender: Sender, receive: Receive, host: str) -> None:
    """The guard looks at what the system's resolver made of it."""
    receiver = receive(answer(200))
    url = f"http://{host}:{receiver.port}/"
    execution = sender.deliver(sender.declare(url, allow=public_addresses))
    assert isinstance(execution.error, DeliveryFailed)
    assert receiver.connections == 0


def test_the_address_that_was_looked_at_is_the_one_connected_to(
    sender: Sender, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard: resolved once, so a name that changes its mind (DNS rebinding) changes nothing."""
    receiver = receive(answer(200))
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> Any:
        asked.append(host)
        addresses = ["203.0.113.9", "127.0.0.1"] if len(asked) == 1 else ["203.0.113.9"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr("rowsweep.webhook.line.socket.getaddrinfo", resolve)
    handle = sender.declare(f"http://shop.example:{receiver.port}/", allow=lambda address: str(address) == "127.0.0.1")
    assert sender.deliver(handle).outcome == "completed"
    assert asked == ["shop.example"]
    assert receiver.requests[0].headers["host"] == f"shop.example:{receiver.port}"


def test_no_logger_is_told_the_url(sender: Sender, receive: Receive, caplog: pytest.LogCaptureFixture) -> None:
    """S-370: not by the libraries underneath either, however much they are asked to say."""
    caplog.set_level(0)
    for status in (200, 500):
        receiver = receive(answer(status))
        sender.deliver(sender.declare(receiver.url))
        reset_jobs()
        assert "t0ken" in receiver.requests[0].line
    assert "t0ken" not in "".join(f"{record.__dict__}" for record in caplog.records)


def test_an_endpoint_s_function_must_answer_an_endpoint(sender: Sender) -> None:
    """D-37: terminal, and said."""
    execution = sender.deliver(sender.declare("", endpoint=lambda _: "https://shop/"))
    assert execution.outcome == "dead-lettered"
    assert "must answer an Endpoint" in str(execution.error)
