"""Where an enqueue goes: straight to the queue, into the caller's transaction, or into its database's outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.errors import NotImplementedByDriver, TransactionRequired
from rowsweep.jobs import ambient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.stores.outbox import OutboxPlace, OutboxStore


def enqueue(
    driver: Driver, requests: Sequence[NewJob], *, tx: Any = None, outbox: bool = False, known: OutboxPlace | None
) -> list[EnqueueResult]:
    """Put the jobs, all or none, into the transaction of `tx`, else the ambient one, else on the queue by themselves.

    In a transaction of another database than the queue's, or with `outbox`, they are staged in that database's outbox.
    `known` is the place whose outbox the app was told of. Raises TransactionRequired, SchemaMissing, InvalidOption.
    """
    joined = tx if tx is not None else ambient.open_transaction()
    if joined is None:
        if outbox:
            raise TransactionRequired(
                "outbox=True stages the job in a transaction, and none is open.",
                fix="with rs.transaction(): around the enqueue, or tx=connection",
                meta={"option": "outbox"},
            )
        return driver.stores().jobs.enqueue(requests)
    staging = _staging(driver, joined, outbox=outbox, known=known)
    if staging is not None:
        return staging.stage(requests)
    return driver.join(joined).jobs.enqueue(requests)


def _staging(driver: Driver, joined: Any, *, outbox: bool, known: OutboxPlace | None) -> OutboxStore | None:
    """Answer the outbox that the jobs are staged in, None where they go straight into the queue's own tables."""
    over = getattr(driver, "outbox_over", None)
    found: OutboxStore | None = None
    if over is not None:
        found = over(joined, known=known, is_asked=outbox)
    elif outbox:
        found = driver.join(joined).outbox
    if found is None and outbox:
        raise no_outbox(driver)
    return found


def no_outbox(driver: Driver) -> NotImplementedByDriver:
    """Make the refusal of an outbox by a driver that keeps none."""
    return NotImplementedByDriver(
        f"The driver {driver.name!r} keeps no outbox.",
        fix='rs.connect("postgresql://…"), or MemoryDriver() in a test',
        meta={"driver": driver.name, "feature": "outbox"},
    )
