"""Have pages computed out there, and take what comes back."""

from __future__ import annotations

import pickle
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import Interrupted, InvariantBroken
from rowsweep.sweeps.executors.far import PageBack, PageOut, compute, warm
from rowsweep.sweeps.executors.lane import Lane, blameless
from rowsweep.sweeps.executors.orders import Order, sendable

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from rowsweep.signals import RunSignal
    from rowsweep.sweeps.batch.batch import BatchPlace
    from rowsweep.sweeps.batch.forms.reading import Form, PageRows
    from rowsweep.sweeps.declare import RowSweep
    from rowsweep.sweeps.keyset.catalog import Table

_LOOK_SECONDS: Final = 1.0
_NOT_STARTED: Final = (
    "its processes ended before they had a page: a script that is itself the program needs `if __name__ == '__main__':`"
)


@dataclass(frozen=True, slots=True)
class Coming:
    """A call that is out: what will come back, and the token that it is to have."""

    future: Future[PageBack]
    token: str

    def back(self) -> PageBack:
        """Answer what came back; InvariantBroken where it is no answer to this call."""
        back: Any = self.future.result()
        if isinstance(back, PageBack) and back.token == self.token:
            return back
        what = "what another call came to" if isinstance(back, PageBack) else f"{back!r:.100}"
        raise InvariantBroken(
            f"The executor answered a call with {what}, and not with what the function came to that it was given.",
            fix="executor= a concurrent.futures.Executor that calls what is submitted, each time anew",
        )


class Calls:
    """Send pages out in the forms that the handler reads, frames until it asks for more."""

    def __init__(self, lane: Lane, order: Order, signal: RunSignal | None) -> None:
        self.lane = lane
        self.forms: frozenset[Form] = frozenset({"frame"})
        self._order = order
        self._packed = b""
        self._signal = signal
        self._warmed = 0
        self._is_settled = False

    def start(self) -> bool:
        """Have every worker import what it needs, once an executor; answer whether there was any need to."""
        if self.lane.is_made and self._warmed == self.lane.started:
            return False
        workers = self.lane.workers
        self._packed = self._order.packed(is_watched=self.lane.is_pool)
        try:
            for coming in [self._warm() for _ in range(workers)]:
                self.take(coming).value()
        except Exception as error:
            blameless(error)
            if isinstance(error, BrokenExecutor):
                error.add_note(_NOT_STARTED)
            raise
        self._warmed = self.lane.started
        return True

    def read(self, reader: PageRows) -> int:
        """Read a page in the forms that are due; answer how many rows it has."""
        return max(reader.read(form) for form in sorted(self.forms))

    def send(self, reader: PageRows, place: BatchPlace) -> Coming:
        """Send a page out in the forms that are due."""
        table = _streamed(reader.wire()) if "frame" in self.forms else None
        rows = pickle.dumps(reader.dicts()) if "dicts" in self.forms else None
        page = PageOut(place=place, token=secrets.token_hex(8), table=table, rows=rows)
        return Coming(self.lane.submit(compute, self._packed, page), page.token)

    def take(self, coming: Coming) -> PageBack:
        """Wait for what comes back; Interrupted where the run is aborted first, BrokenExecutor where the pool died."""
        done, future = threading.Event(), coming.future
        future.add_done_callback(lambda _: done.set())
        remove = None if self._signal is None else self._signal.on_abort(done.set)
        try:
            self._wait(done)
        finally:
            if remove is not None:
                remove()
        if not future.done():
            assert self._signal is not None  # noqa: S101 - who else woke us
            raise Interrupted(self._signal.reason)
        try:
            return coming.back()
        except CancelledError as error:
            error.add_note("the executor gave up the call: it was shut down, or the cluster lost it")
            raise blameless(error) from None

    def _warm(self) -> Coming:
        token = secrets.token_hex(8)
        return Coming(self.lane.submit(warm, self._packed, token), token)

    def _wait(self, done: threading.Event) -> None:
        """Wait for an answer; one that a pool cannot give any more raises BrokenProcessPool."""
        losses = 0
        while not done.wait(_LOOK_SECONDS):
            losses = losses + 1 if self.lane.has_lost() else 0
            if losses > 1:
                raise BrokenProcessPool("A process of the pool died over an answer.")

    def widen(self, wants: frozenset[Form]) -> None:
        """Send what the handler wants from now on; one that wants now this, now that is sent both."""
        self.forms = self.forms | wants if self._is_settled else wants
        self._is_settled = True

    def compute(self, reader: PageRows, place: BatchPlace) -> pl.DataFrame | None:
        """Have one page computed now, and wait for it."""
        self.start()
        try:
            while (back := self.take(self.send(reader, place))).wants is not None:
                self.widen(back.wants)
        except BrokenExecutor as error:
            self.lane.renew(error)
            raise
        return back.value()


@contextmanager
def calling(sweep: RowSweep[Any], table: Table, value: Any, signal: RunSignal | None) -> Iterator[Calls]:
    """Send the pages of one pass to the declared executor; what is still computed behind the block is given up."""
    spec = sweep.spec
    assert spec.executor is not None  # noqa: S101 - both were asked before
    assert spec.handler is not None  # noqa: S101 - likewise
    order = Order(
        name=sweep.name,
        handler=sendable(sweep.name, spec.handler),
        input=value,
        table=table,
        columns=tuple(sweep.read_columns(table)),
    )
    with closing(Lane(spec.executor)) as lane:
        yield Calls(lane, order, signal)


def _streamed(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
