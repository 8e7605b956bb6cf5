"""A connected app over memory, a worker of it, and receivers that are closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.clock import real_monotonic
from rowsweep.jobs.registry import reset_jobs
from rowsweep.lifecycle import Lifecycle
from rowsweep.webhook import Endpoint, MemoryWebhookLedger, webhook
from rowsweep.worker.run.execution import Execution
from rowsweep.worker.worker import Worker
from tests.webhook.receiver import Behaviour, Receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def app() -> Iterator[rs.App]:
    """An app over memory that works nothing by itself."""
    reset_jobs()
    app = rs.connect(driver=rs.MemoryDriver(), work=False)
    yield app
    app.close()
    reset_jobs()


@pytest.fixture
def ledger() -> MemoryWebhookLedger:
    return MemoryWebhookLedger()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Make receivers."""
    made: list[Receiver] = []

    def receiver(behaviour: Behaviour, **given: Any) -> Receiver:
        made.append(Receiver(behaviour, **given))
        return made[-1]

    yield receiver
    for one in made:
        one.close()


class Sender:
    """A webhook to one receiver, and the worker that delivers it."""

    def __init__(self, app: rs.App, ledger: MemoryWebhookLedger) -> None:
        self.app = app
        self.ledger = ledger
        self.phases = Lifecycle("10s")
        self.worker = Worker(
            driver=app.driver, context=lambda: None, lifecycle=self.phases, poll="20ms", poll_floor="5ms",
            poll_with_wake="20ms", margin="100ms",
        )  # fmt: skip

    def declare(self, url: str, **given: Any) -> rs.JobHandle[Any, int]:
        """Declare the webhook, to this URL."""
        disabled = given.pop("disabled", False)
        secrets = given.pop("secrets", (SECRET,))
        endpoint = given.pop("endpoint", None) or (lambda _: Endpoint("shop-7", url, secrets, disabled=disabled))
        options: dict[str, Any] = {"tenant": "none", "input": dict, "event": "order.paid", "ledger": self.ledger}
        return webhook("order-paid", endpoint=endpoint, **(options | given))

    def deliver(self, handle: rs.JobHandle[Any, int], value: Any = None) -> Execution:
        """Enqueue one delivery and make one attempt at it."""
        handle.enqueue({"order": 7} if value is None else value)
        return self.attempt()

    def attempt(self) -> Execution:
        """Make one attempt."""
        (execution,) = self.worker.tick()
        return execution


@pytest.fixture
def sender(app: rs.App, ledger: MemoryWebhookLedger) -> Iterator[Sender]:
    made = Sender(app, ledger)
    yield made
    made.worker.stop(deadline_at=real_monotonic() + 5)
