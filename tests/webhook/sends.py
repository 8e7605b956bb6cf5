"""What a test asks of a delivery and its job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rowsweep.clock import real_monotonic
from tests.webhook.conftest import Sender
from tests.webhook.receiver import Receiver

Receive = Callable[..., Receiver]


def job_of(sender: Sender) -> Any:
    from rowsweep.queue.records import JobFilter

    inspection = sender.app.stores().inspection
    assert inspection is not None
    (row,) = inspection.list(JobFilter())
    return row


def until(ask: Callable[[], Any], seconds: float = 45.0) -> None:
    give_up_at = real_monotonic() + seconds
    while not ask():
        assert real_monotonic() < give_up_at
        threading.Event().wait(0.005)
