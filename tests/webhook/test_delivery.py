"""Deliveries against a real server: what is sent, what its answers mean, and what is recorded."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.clock import real_monotonic
from rowsweep.errors import (
    DeliveryFailed,
    DeliveryThrottled,
    EndpointDisabled,
    InvalidDeclaration,
    InvalidOption,
    LeaseLost,
)
from rowsweep.jobs.registry import reset_jobs
from rowsweep.webhook import Endpoint, MemoryWebhookLedger, public_addresses, verify_webhook_signature, webhook
from tests.webhook.conftest import SECRET, Sender
from tests.webhook.receiver import Receiver, answer, endless, hang, nonsense, reset, stalled, torn

Receive = Callable[..., Receiver]


def job_of(sender: Sender) -> Any:
    from rowsweep.queue.records import JobFilter

    inspection = sender.app.stores().inspection
    assert inspection is not None
    (row,) = inspection.list(JobFilter())
    return row


def until(ask: Callable[[], Any], seconds: float = 20.0) -> None:
    give_up_at = real_monotonic() + seconds
    while not ask():
        assert real_monotonic() < give_up_at
        threading.Event().wait(0.005)


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


def test_there_is_no_deadline_unless_one_is_declared(sender: Sender) -> None:
    """S-377: it is a job's own `timeout`."""
    assert sender.declare("https://shop.example/hooks").options.timeout is None
    reset_jobs()
    assert sender.declare("https://shop.example/hooks", timeout="20s").options.timeout == timedelta(seconds=20)


def test_a_deadline_aborts_the_request_and_records_nothing(sender: Sender, receive: Receive) -> None:
    """S-375: the receiver sees the connection end."""
    receiver = receive(hang)
    execution = sender.deliver(sender.declare(receiver.url, timeout="200ms"))
    assert execution.error is not None
    assert getattr(execution.error, "code", None) == "X_JOB_TIMEOUT"
    assert receiver.gone.wait(10)
    assert sender.ledger.deliveries == []


def test_a_lost_lease_aborts_the_request_and_records_nothing(sender: Sender, receive: Receive) -> None:
    """S-375: a cancelled delivery is not heard of again."""
    receiver = receive(hang)
    handle = sender.declare(receiver.url)
    sender.worker.start()
    job_id = handle.enqueue({"order": 7}).id
    assert receiver.arrived.wait(20)
    crew = sender.worker._crew
    assert crew is not None
    crew.flights.all()[0].revoke(LeaseLost("gone.", fix="rowsweep jobs show"))
    assert receiver.gone.wait(10)
    until(lambda: sender.worker.stats.in_flight == 0)
    assert sender.ledger.deliveries == []
    assert job_id is not None


def test_a_request_under_way_outlives_a_drain_and_is_recorded(sender: Sender, receive: Receive) -> None:
    """S-376: also past the cut-off, which aborts everything else."""
    receiver = receive(hang)
    handle = sender.declare(receiver.url)
    sender.worker.start()
    handle.enqueue({"order": 7})
    assert receiver.arrived.wait(20)
    stopping = threading.Thread(
        target=sender.worker.stop, kwargs={"deadline_at": real_monotonic() + 5.0}, name="rowsweep-stop", daemon=True
    )
    stopping.start()
    crew = sender.worker._crew
    assert crew is not None
    until(lambda: crew.drain_signal.draining)
    crew.drain_signal.abort(_draining())
    receiver.let_go.set()
    stopping.join(20)
    assert [(kept.status, kept.outcome) for kept in sender.ledger.deliveries] == [(204, "delivered")]
    assert job_of(sender).state == "done"


def _draining() -> Any:
    from rowsweep.errors import Draining

    return Draining("the budget is used up.", fix="more of it")


def test_a_delivery_that_has_no_socket_yet_is_stopped_by_a_drain(sender: Sender, receive: Receive) -> None:
    """S-376: handed back uncounted, and nothing is recorded."""
    receiver = receive(answer(200))
    asked, go = threading.Event(), threading.Event()

    def endpoint(_: Any) -> Endpoint:
        asked.set()
        assert go.wait(20)
        return Endpoint("shop-7", receiver.url, SECRET)

    handle = sender.declare("", endpoint=endpoint)
    sender.worker.start()
    handle.enqueue({"order": 7})
    assert asked.wait(20)
    stopping = threading.Thread(target=sender.worker.stop, name="rowsweep-stop", daemon=True)
    stopping.start()
    crew = sender.worker._crew
    assert crew is not None
    until(lambda: crew.drain_signal.draining)
    go.set()
    stopping.join(20)
    row = job_of(sender)
    assert (row.state, row.attempt, receiver.connections) == ("ready", 0, 0)
    assert sender.ledger.deliveries == []


def test_a_connection_that_is_not_answered_times_out(sender: Sender) -> None:
    """D-33: the connect timeout, on a listener whose queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        execution = sender.deliver(sender.declare(f"http://127.0.0.1:{port}/", connect_timeout="300ms"))
        for filler in fillers:
            filler.close()
    assert "no connection within 0.3 s" in str(execution.error)


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
