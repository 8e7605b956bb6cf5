"""Take over half of another shard's range: its end moves under its job's lock, where the batch under way meets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import LeaseLost
from rowsweep.queue.stores.shards import shard_suffix
from rowsweep.queue.stores.steps import StepPut
from rowsweep.sweeps.passes.position import PAGES_STEP, KeyRange
from rowsweep.sweeps.shards.totals import end_of
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.queue.contract import Stores
    from rowsweep.queue.stores.shards import ShardJob
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.shards.ranges import KeySpace, Middle

_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """What a shard that is done needs to go on with a part of another's range.

    `source` is the connection to the swept table, `held` the one to the queue; they may be the same. `read` reads a
    shard's checkpoint back, whole: what is stored again must be all that was.
    """

    ctx: RunCtx
    number: int
    source: BatchConnection
    held: BatchConnection
    keys: KeySpace
    read: Callable[[Any, str], Position]

    def take(self, at: Position, *, at_least: float) -> Position | None:
        """Take over the upper half of the range of which most is left, and answer the stored position in it.

        None where no range has `at_least` so many keys left, or where another shard waits for a worker: this one's is
        better free for it.
        """
        for _ in range(_TRIES):
            others = [shard for shard in self._shards() if shard.number != self.number and not self._at(shard).ended]
            if not others or any(shard.state != "running" for shard in others):
                return None
            middle = self._heaviest(others, at_least=at_least)
            if middle is None:
                return None
            owner = next(shard for shard in others if shard.number == middle.number)
            taken = self._take_from(owner, middle, at)
            if taken is not None:
                self._tell(middle)
                return taken
        return None

    def rest(self, at: Position, ended: Sequence[Position]) -> Position | None:
        """Begin with the keys that came behind the last range since, and answer the stored position; None without any.

        All shards have `ended`: the one that was in the last range did so while others were at theirs.
        """
        end = end_of(ended)
        if end is None or self.keys.upper is not None:
            return None
        with self.source.transaction(reads=True):
            if not self.keys.goes_on_behind(self.source.connection, end):
                return None
        mine = at.taking(KeyRange(after=end, to=None))
        with self.held.transaction():
            stores = self.held.stores
            if not stores.steps.guard(self.ctx.claim):
                raise self._lost()
            self._put(stores, PAGES_STEP + shard_suffix(self.number), mine)
        return mine

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"The claim of {self.ctx.job!r} was lost before it took another range.",
            fix=f"rowsweep jobs show {self.ctx.job_id}",
        )

    def _shards(self) -> list[ShardJob]:
        shards = self.ctx.driver.stores().shards
        return [] if shards is None else shards.jobs(self.ctx.run_id, step=PAGES_STEP)

    def _heaviest(self, others: list[ShardJob], *, at_least: float) -> Middle | None:
        left = {shard.number: left_of(self._at(shard)) for shard in others}
        with self.source.transaction(reads=True):
            return self.keys.worth_halving(self.source.connection, left, at_least)

    def _take_from(self, owner: ShardJob, middle: Middle, at: Position) -> Position | None:
        """Move the end of the owner's range to the middle and begin there, under the locks of both jobs' rows.

        None where the owner has come too far since, whose cursor only moves under its row's lock, or holds that now.
        """
        ctx, step = self.ctx, PAGES_STEP + shard_suffix(owner.number)
        assert owner.job_id is not None  # noqa: S101 - it was running
        with self.held.transaction():
            stores = self.held.stores
            is_held = False if stores.shards is None else stores.shards.hold(ctx.claim, owner.job_id)
            if is_held is False:
                raise self._lost()
            if is_held is None:
                return None
            stored = stores.steps.get(ctx.run_id, step)
            theirs = self.read(None if stored is None else stored.output, step)
            if theirs.ended or theirs.range is None or not self._is_inside(middle, left_of(theirs)):
                return None
            mine = at.taking(KeyRange(after=middle.key, to=theirs.range.to))
            self._put(stores, step, replace(theirs, range=KeyRange(after=theirs.range.after, to=middle.key)))
            self._put(stores, PAGES_STEP + shard_suffix(self.number), mine)
        return mine

    def _tell(self, middle: Middle) -> None:
        emit(
            "sweeps.shards.taken",
            sweep=self.ctx.job,
            run_id=str(self.ctx.run_id),
            shard=self.number,
            of_shard=middle.number,
            key=", ".join(middle.key),
        )

    def _is_inside(self, middle: Middle, left: KeyRange) -> bool:
        if self.source is self.held:
            return self.keys.is_between(self.held.connection, middle.key, left.after, left.to)
        with self.source.transaction(reads=True):
            return self.keys.is_between(self.source.connection, middle.key, left.after, left.to)

    def _at(self, shard: ShardJob) -> Position:
        return self.read(shard.checkpoint, PAGES_STEP + shard_suffix(shard.number))

    def _put(self, stores: Stores, step: str, at: Position) -> None:
        put = StepPut(run_id=self.ctx.run_id, name=step, kind="checkpoint", status="done", output=at.as_json())
        stores.steps.put(put, self.ctx.claim)


def left_of(at: Position) -> KeyRange:
    """Answer what is left of the range that a shard is in: what it has planned is its own."""
    assert at.range is not None  # noqa: S101 - a shard's position has a range
    return KeyRange(after=at.cursor if at.plan is None else at.plan.to, to=at.range.to)
