"""What cuts a request off: its deadline, a lost lease, a drain."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from typing import Any

from rowsweep.clock import real_monotonic
from rowsweep.errors import (
    LeaseLost,
)
from rowsweep.jobs.registry import reset_jobs
from rowsweep.webhook import Endpoint
from tests.webhook.conftest import SECRET, Sender
from tests.webhook.receiver import answer, hang
from tests.webhook.sends import Receive, job_of, until


def test_there_is_no_deadline_unless_one_is_declared(sender: Sender) -> None:
    """S-377: it is a job's own `timeout`."""
    assert sender.declare("https://shop.example/hooks").options.timeout is None
    reset_jobs()
    assert sender.declare("https://shop.example/hooks", timeout="20s").options.timeout == timedelta(seconds=20)


def test_a_deadline_aborts_the_request_and_records_nothing(sender: Sender, receive: Receive) -> None:
    """S-375: the receiver sees the connection end."""
    receiver = receive(hang)
    execution = sender.deliver(sender.declare(receiver.url, timeout="3s"))
    assert execution.error is not None
    assert getattr(execution.error, "code", None) == "X_JOB_TIMEOUT"
    assert receiver.gone.wait(60)
    assert sender.ledger.deliveries == []


def test_a_lost_lease_aborts_the_request_and_records_nothing(sender: Sender, receive: Receive) -> None:
    """S-375: a cancelled delivery is not heard of again."""
    receiver = receive(hang)
    handle = sender.declare(receiver.url)
    sender.worker.start()
    job_id = handle.enqueue({"order": 7}).id
    assert receiver.arrived.wait(60)
    crew = sender.worker._crew
    assert crew is not None
    crew.flights.all()[0].revoke(LeaseLost("gone.", fix="rowsweep jobs show"))
    assert receiver.gone.wait(60)
    until(lambda: sender.worker.stats.in_flight == 0)
    assert sender.ledger.deliveries == []
    assert job_id is not None


def test_a_request_under_way_outlives_a_drain_and_is_recorded(sender: Sender, receive: Receive) -> None:
    """S-376: also past the cut-off, which aborts everything else."""
    receiver = receive(hang)
    handle = sender.declare(receiver.url)
    sender.worker.start()
    handle.enqueue({"order": 7})
    assert receiver.arrived.wait(60)
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
        assert go.wait(60)
        return Endpoint("shop-7", receiver.url, SECRET)

    handle = sender.declare("", endpoint=endpoint)
    sender.worker.start()
    handle.enqueue({"order": 7})
    assert asked.wait(60)
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
