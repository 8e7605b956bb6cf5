"""End a sweep's pass as a killed process would, at a chosen batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from rowsweep.errors import Draining, Interrupted
from rowsweep.options import count
from rowsweep.spelling import spelled
from rowsweep.sweeps.batch.closing import Closer

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import BatchClose, BatchClosed, LedgerStore


@dataclass(slots=True)
class Interruption:
    """What became of one `interrupt_after`: how many batches were committed, and whether it `happened`."""

    after: int
    committed: int = 0
    happened: bool = False


_active: list[Interruption] = []


@spelled
@contextmanager
def interrupt_after(batches: int) -> Iterator[Interruption]:
    """End the pass of a sweep of this process once that many batches are committed, as SIGKILL would.

    The batch that follows is cut off at the worst moment: its handler has run, nothing of it is committed and no
    checkpoint is stored. Its transaction rolls back, what it did elsewhere (`atomic=False`) stays done. The run is due
    again at once and goes on behind its last checkpoint when it is next worked, outside the block. A pass with no more
    batches than that ends undisturbed; `happened` of what this answers says which.

        for n in range(5):
            with interrupt_after(n):
                drain()
            drain()     # goes on: the effects must be those of one undisturbed pass
    """
    interruption = Interruption(count(batches, option="batches", minimum=0))
    original = Closer.send

    def send(self: Closer, ledger: LedgerStore, close: BatchClose) -> BatchClosed:
        is_batch = close.totals is not None or (close.shard is not None and close.shard.status == "running")
        if is_batch and (interruption.happened or interruption.committed >= interruption.after):
            interruption.happened = True
            reason = Draining(f"Interrupted by a test after {interruption.after} batches.", fix="none needed")
            self.ctx.signal.abort(reason)
            raise Interrupted(reason)
        closed = original(self, ledger, close)
        interruption.committed += is_batch and closed.open and closed.held and closed.expected
        return closed

    _active.append(interruption)
    try:
        with mock.patch.object(Closer, "send", send):
            yield interruption
    finally:
        _active.remove(interruption)


def has_interrupted() -> bool:
    """Say whether an interruption happened inside a block that is still open."""
    return any(interruption.happened for interruption in _active)
