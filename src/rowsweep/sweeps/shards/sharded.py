"""What makes a pass that of one shard: its own ranges, then half of another's, and for the first the run's end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import DriverUnavailable, InvariantBroken
from rowsweep.queue.stores.ledger import BatchClose
from rowsweep.queue.stores.shards import ShardFigures, shard_number, shard_suffix
from rowsweep.sweeps.batch.closing import CheckpointMoved
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.passes.pacing import Pacer
from rowsweep.sweeps.passes.position import PAGES_STEP, SETUP_STEP, KeyRange, Position
from rowsweep.sweeps.passes.progress import Progress
from rowsweep.sweeps.passes.table import Pass
from rowsweep.sweeps.shards.amount import Amount, how_many
from rowsweep.sweeps.shards.ending import ended_shards, prove_tiling
from rowsweep.sweeps.shards.lending import Lending
from rowsweep.sweeps.shards.opening import BUSY_SECONDS, Opening, OthersLive, is_other_live
from rowsweep.sweeps.shards.ranges import KeySpace
from rowsweep.sweeps.shards.totals import final_figures, final_totals, summed
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill, Wanted
    from rowsweep.queue.stores.shards import ShardStore
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.closing import BatchDone
    from rowsweep.sweeps.handle import TableSweep
    from rowsweep.sweeps.setup import Setup

AWAIT_SECONDS: Final = 60.0


class Sharded(Pass):
    """Carry one shard of a run on from wherever it stands; where there turn out to be no shards, the whole run.

    It stands before the pass of a kind of sweep, whose pages, checkpoints and end it makes those of one of several.

    The first job opens the shards and, once all others have ended, the run's end: it proves that what was passed
    covers every key once.
    """

    def __init__(self, sweep: TableSweep[Any], ctx: RunCtx, value: Any) -> None:
        super().__init__(sweep, ctx, value)
        self._number = shard_number(ctx.record.concurrency_key)
        self._step = PAGES_STEP + shard_suffix(self._number)
        self._began = real_monotonic()
        self._active_before = 0.0
        self._is_behind = False
        self._is_alone = False
        self._amount = Amount(1, "no rows")

    def _stored_setup(self, known: Backfill | None) -> Any:
        ctx = self._ctx
        if known is not None and known.shards is not None:
            if known.wanted == "cancel":
                self._steer("cancel")
            self._shards().revive(ctx.claim)
        is_stored = ctx.step.stored(SETUP_STEP, "run") is not None
        if self._number > 1 or is_stored or gate.retried_run(self._options) is not None:
            return super()._stored_setup(known)
        if is_other_live(self._ledger(), self._sweep, ctx):
            self._wait_for_other_run()
        try:
            return self._open_shards(known)
        except OthersLive:
            self._wait_for_other_run()

    def _wait_for_other_run(self) -> NoReturn:
        """Two runs over one input never work at the same time: come back later."""
        self._release()
        self._ctx.suspend("shards", BUSY_SECONDS)

    def _open_shards(self, known: Backfill | None) -> Any:
        stored = self._open_with(known)
        emit(
            "sweeps.shards.opened",
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            shards=stored.get("shards", 1),
            reason=self._amount.reason,
        )
        return stored

    @abstractmethod
    def _open_with(self, known: Backfill | None) -> Any:
        """Find the run's setup and its ranges and store them, with all that follows from them; answer the setup."""

    def _divide(self, setup: Setup) -> list[KeyRange]:
        """Answer the ranges of so many shards as are wanted, in the open transaction of the source."""
        if setup.is_over_nothing:
            return [KeyRange(after=None, to=None)]
        self._amount = how_many(self._sweep, self._ctx, setup)
        return KeySpace.of(setup, self._sweep.spec.rows).divide(self._source.connection, self._amount.shards)

    def _store(self, setup: Any, ranges: list[KeyRange], known: Backfill | None) -> Any:
        """Store what was found, with the other jobs, in the open transaction of the queue."""
        opening = Opening(sweep=self._sweep, ctx=self._ctx, held=self._held)
        beginning = self._position(None, self._step)
        positions = [replace(beginning, cursor=each.after, range=each) for each in ranges]
        return opening.store(setup, positions, self._new_row(known))

    @property
    def _is_one_of_several(self) -> bool:
        return self._setup.shards > 1

    @property
    def _is_in_range(self) -> bool:
        """Whether it passes ranges of its own, and not what is left at the end of the run."""
        return self._is_one_of_several and not self._is_alone

    def _sweep_pages(self, row: Backfill) -> None:
        if self._is_one_of_several:
            self._keys = KeySpace.of(self._setup, self._sweep.spec.rows)
            own = (row.shards or [])[self._number - 1 : self._number]
            self._active_before = float(own[0]["active_seconds"]) if own else 0.0
        super()._sweep_pages(row)
        while self._is_one_of_several and self._take_more():
            self._walk("run")

        if self._is_one_of_several:
            self._report_again()

    def _next_batch(self) -> tuple[BatchDone, float]:
        done, milliseconds = super()._next_batch()
        self._is_behind = not done.closed.reported
        return done, milliseconds

    def _show_waiting(self, why: str | None, governed: Mapping[str, Any] | None = None) -> None:
        with suppress(DriverUnavailable):  # the next batch, or the end, reports it
            self._report_again()
        super()._show_waiting(why, governed)

    def _report_again(self) -> None:
        """Report what another shard was in the way of, before a wait and at the end: no batch follows soon."""
        figures = self._figures(None, self._at) if self._is_behind else None
        if figures is None:
            return
        value = self._at.as_json()
        same = BatchClose(
            claim=self._ctx.claim, run_id=self._ctx.run_id, step=self._step, expected=value, value=value, totals=None,
            shard=figures,
        )  # fmt: skip
        self._is_behind = not self._shards().move(same).reported

    def _resumed(self) -> Any:
        """Read the checkpoint as it is now: the end of its range may have moved since the run's steps were read."""
        if not self._is_one_of_several:
            return super()._resumed()
        step = self._ctx.step.read(self._step)
        return None if step is None else step.output

    def _take_rest(self) -> bool:
        """Go on with what came behind the last range after its end was passed, if anything did."""
        while True:
            self._heed_latest()
            try:
                self._at = self._lending().rest(self._at, self._ended) or self._at
            except Exception as error:  # noqa: BLE001 - sorted there, and raised again unless it passes
                self._recover(error)
                if self._at.ended:
                    continue
            return not self._at.ended

    def _lending(self) -> Lending:
        return Lending(
            ctx=self._ctx, number=self._number, source=self._source, held=self._held, keys=self._keys,
            read=self._position,
        )  # fmt: skip

    def _take_more(self) -> bool:
        """Go on with a part of what another shard has left, where that is worth it."""
        self._heed_latest()
        try:
            self._at = self._lending().take(self._at, at_least=self._worth_taking()) or self._at
        except Exception as error:  # noqa: BLE001 - sorted there, and raised again unless it passes
            self._recover(error)
        return not self._at.ended

    @abstractmethod
    def _worth_taking(self) -> int:
        """Answer how many keys a range must have left to be worth halving."""

    def _closing(self) -> dict[str, Any]:
        closing = super()._closing()
        return {**closing, "shard": self._figures} if self._is_in_range else closing

    def _figures(self, before: Position | None, at: Position) -> ShardFigures | None:
        """Answer what there is to report of a batch; nothing of one without rows, unless the range ends with it."""
        if before is not None and at.index == before.index and not at.ended:
            return None
        assert at.range is not None  # noqa: S101 - a shard's position has a range
        after, to = at.range.as_json()
        return ShardFigures(
            number=self._number,
            status="done" if at.ended else "running",
            rows=at.rows,
            written=at.written,
            batches=at.batches,
            cursor=None if at.cursor is None else list(at.cursor),
            after=after,
            to=to,
            active_seconds=round(self._active_before + real_monotonic() - self._began, 3),
        )

    def _recover(self, error: Exception) -> None:
        if isinstance(error, CheckpointMoved) and self._is_in_range and not self._ctx.signal.aborted:
            self._resynchronise()  # another shard took over the upper part of this range
        else:
            super()._recover(error)

    def _steer(self, wanted: Wanted | None) -> None:
        if wanted == "cancel" and self._shards().stop(self._ctx.claim, self._number) is None:
            return  # it was resumed in between
        super()._steer(wanted)

    def _shards(self) -> ShardStore:
        shards = self._ctx.driver.stores().shards
        if shards is None:
            raise InvariantBroken(
                f"The driver {self._ctx.driver.name!r} keeps no shards.", fix="rs.connect() with the Postgres driver"
            )
        return shards

    def _behind_pages(self) -> None:
        """Look again for the whole run, once all shards have passed their ranges: the first does, for all."""
        if not self._is_one_of_several:
            super()._behind_pages()
        elif self._number == 1:
            self._ended = self._await_others()
            self._pacer = Pacer(self._rate(), SystemClock())
            if self._take_rest():
                self._walk("run")
                self._report_again()
                self._ended = self._await_others()
            self._at = self._sum(self._ended)
            self._is_alone = True
            self._progress = Progress(self._ledger().get(self._ctx.run_id))
            super()._behind_pages()

    def _finish(self) -> dict[str, Any]:
        if not self._is_one_of_several:
            return super()._finish()
        if self._number > 1:
            return {"shard": self._number, **self._own_totals()}
        return super()._finish()

    def _own_totals(self) -> dict[str, Any]:
        """Answer what a job that is not the first comes to."""
        at = self._at
        return {"rows": at.rows, "written": at.written, "batches": at.batches}

    def _sum(self, shards: list[Position]) -> Position:
        """Answer one position with the counts of all."""
        return summed(shards)

    def _await_others(self) -> list[Position]:
        """Park until every other shard has ended; answer where all of them stand then."""
        shards = self._shards().jobs(self._ctx.run_id, step=PAGES_STEP)
        ended = ended_shards(shards, self._ctx, amount=self._setup.shards, read=self._position)
        if ended is None:
            self._release()
            self._ctx.suspend("shards", AWAIT_SECONDS)
        return ended

    def _finish_ledger(self) -> dict[str, Any]:
        if self._is_one_of_several:
            self._ranges = prove_tiling(self._ended, self._keys, self._source, self._ctx)
        return super()._finish_ledger()

    def _end_ledger(self) -> None:
        if not self._is_one_of_several:
            super()._end_ledger()
            return
        with self._held.transaction():
            stores, claim, run_id = self._held.stores, self._ctx.claim, self._ctx.run_id
            assert stores.ledger is not None and stores.shards is not None  # noqa: S101, PT018 - asked before
            row = stores.ledger.get(run_id)
            if row is None or not stores.shards.put(claim, run_id, final_figures(row, self._ended)):
                raise self._lost()
            stores.ledger.finish(claim, run_id, final_totals(row, self._at), late=self._told_late())

    def _more_totals(self) -> dict[str, Any]:
        more = super()._more_totals()
        return {**more, "shards": len(self._ended), "ranges": self._ranges} if self._is_one_of_several else more
