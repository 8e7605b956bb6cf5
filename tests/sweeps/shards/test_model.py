"""Ranges that change hands at random, between batches, plans and lost claims: every key is done, and none twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.records import Claim, ClaimOptions, claim_of
from rowsweep.queue.stores.ledger import BatchClose
from rowsweep.queue.stores.shards import ShardFigures, shard_suffix
from rowsweep.queue.stores.steps import StepPut
from rowsweep.sweeps.passes.position import PAGES_STEP, KeyRange, Plan, Position, as_checkpoint
from rowsweep.sweeps.shards.lending import Lending
from rowsweep.sweeps.shards.ranges import KeySpace, Middle
from rowsweep.sweeps.shards.totals import ranges_of
from rowsweep.testing.clock import FakeClock
from tests.queue.world import new_backfill, new_job

KEYS = range(1, 25)
WHERE = st.integers(0, 26)


def key(number: int) -> tuple[str, ...]:
    return (str(number),)


def within(each: KeyRange) -> list[int]:
    """Answer the table's keys behind one bound up to the other."""
    after = 0 if each.after is None else int(each.after[0])
    to = KEYS[-1] if each.to is None else int(each.to[0])
    return list(KEYS[bisect_right(KEYS, after) : bisect_right(KEYS, to)])


class Middles:
    """Answer a middle that the test chooses, right or wrong."""

    def __init__(self) -> None:
        self.chosen = 0
        self.owner = 0

    def worth_halving(self, connection: Any, ranges: Mapping[int, KeyRange], at_least: float) -> Middle:
        numbers = sorted(ranges)
        return Middle(number=numbers[self.owner % len(numbers)], key=key(self.chosen), rows=1e6)

    def is_between(self, connection: Any, middle: tuple[str, ...], behind: Any, before: Any) -> bool:
        low = 0 if behind is None else int(behind[0])
        return low < int(middle[0]) and (before is None or int(middle[0]) < int(before[0]))


class Held:
    """A batch's connection over the memory driver."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver
        self.connection = None
        self.stores: Any = driver.stores()

    @contextmanager
    def transaction(self, *, reads: bool = False) -> Iterator[str]:
        with self._driver.transaction() as opened:
            self.stores = opened.stores
            yield ""


@dataclass
class Worker:
    """Who works a shard: its claim, and the position it last knew."""

    number: int
    claim: Claim
    at: Position | None = None


class Shards(RuleBasedStateMachine):
    """Work shards by their real checkpoints; a batch's effects count only where its closing statement landed."""

    @initialize(bounds=st.sets(st.integers(1, 23), min_size=1, max_size=3))
    def open(self, bounds: set[int]) -> None:
        self.driver = MemoryDriver(FakeClock())
        stores: Any = self.driver.stores()
        self.stores = stores
        self.done: Counter[int] = Counter()
        self.keys = Middles()
        first = new_job("sweep", concurrency_key="d")
        self.run_id = first.run_id
        edges = [None, *map(key, sorted(bounds)), None]
        self.ranges = [KeyRange(after=edges[at], to=edges[at + 1]) for at in range(len(edges) - 1)]
        self.amount = len(self.ranges)
        siblings = [
            new_job("sweep", run_id=self.run_id, concurrency_key=f"d{shard_suffix(number)}")
            for number in range(2, self.amount + 1)
        ]
        self.stores.jobs.enqueue([first, *siblings])
        options = ClaimOptions(queues=["default"], names=["sweep"], worker_id="w", limit=64)
        claimed = {job.concurrency_key: claim_of(job) for job in self.stores.jobs.claim(options).jobs}
        self.workers = [Worker(number, claimed[f"d{shard_suffix(number)}"]) for number in range(1, self.amount + 1)]
        self.former: list[Worker] = []
        self.stores.ledger.start(new_backfill(self.run_id, "sweep"))
        for number, each in enumerate(self.ranges, 1):
            self._put(number, Position(cursor=each.after, range=each))
        figures = [ShardFigures(number=number, status="waiting") for number in range(1, self.amount + 1)]
        self.stores.shards.put(self.workers[0].claim, self.run_id, figures)

    @rule(which=st.integers(0, 4), rows=st.integers(1, 8))
    def batch(self, which: int, rows: int) -> None:
        """Do a page, or what was planned, and close it."""
        self._batch(self.workers[which % self.amount], rows)

    @rule(which=st.integers(0, 4), rows=st.integers(1, 8))
    def plan(self, which: int, rows: int) -> None:
        """Store a page's bounds before it is done."""
        worker = self.workers[which % self.amount]
        at = self._at(worker)
        page = self._page(at, rows)
        if at.plan is None and page:
            self._close(worker, at, at.planned(Plan(to=key(page[-1]), rows=len(page))))

    @rule(which=st.integers(0, 4))
    def finish(self, which: int) -> None:
        """Do all that a shard has left."""
        self._finish(self.workers[which % self.amount])

    @rule(which=st.integers(0, 4))
    def lose(self, which: int) -> None:
        """Give a shard to another worker; the one before knows nothing of it, and may go on."""
        worker = self.workers[which % self.amount]
        self.former.append(replace(worker))
        state = self.driver._state
        job = state.jobs[worker.claim.job_id]
        taken = replace(job, claimed_by=f"w{job.claims}", claims=job.claims + 1)
        state.write(taken)
        worker.claim, worker.at = claim_of(taken), None

    @rule(which=st.integers(0, 9), rows=st.integers(1, 8))
    def go_on_after_the_loss(self, which: int, rows: int) -> None:
        """Let a worker that lost its claim try to close a batch."""
        if self.former:
            self._batch(self.former[which % len(self.former)], rows)

    @rule(which=st.integers(0, 4), owner=st.integers(0, 4), middle=WHERE)
    def take(self, which: int, owner: int, middle: int) -> None:
        """Let a shard that is done take over behind a key, wherever that lies."""
        worker = self.workers[which % self.amount]
        at = self._at(worker)
        if not at.ended:
            return
        self.keys.owner, self.keys.chosen = owner, middle
        held: Any = Held(self.driver)
        ctx = SimpleNamespace(driver=self.driver, claim=worker.claim, run_id=self.run_id, job="sweep", job_id="")
        lending = Lending(
            ctx=cast("Any", ctx),
            number=worker.number,
            source=held,
            held=held,
            keys=cast("KeySpace", self.keys),
            read=as_checkpoint,
        )
        worker.at = lending.take(at, at_least=4) or at

    @invariant()
    def ranges_tile(self) -> None:
        """Every key is in one range of one checkpoint."""
        if not hasattr(self, "driver"):
            return
        stored = [self._stored(number) for number in range(1, self.amount + 1)]
        covered = Counter(number for each in ranges_of(stored) for number in within(each))
        assert covered == Counter(KEYS)
        assert all(count == 1 for count in self.done.values())

    def teardown(self) -> None:
        """Work every shard to its end: nothing is left out."""
        if not hasattr(self, "driver"):
            return
        for worker in self.workers:
            worker.at = None
            self._finish(worker)
        self.ranges_tile()
        assert self.done == Counter(KEYS)
        assert sum(self._stored(number).rows for number in range(1, self.amount + 1)) == len(KEYS)

    def _finish(self, worker: Worker) -> None:
        for _ in range(3 * len(KEYS)):
            if self._at(worker).ended:
                return
            self._batch(worker, 7)
        raise AssertionError("it never ends")

    def _batch(self, worker: Worker, rows: int) -> None:
        at = self._at(worker)
        if at.ended:
            return
        if at.plan is not None:
            page = within(KeyRange(after=at.cursor, to=at.plan.to))
            self._close(worker, at, at.moved(at.plan.to, rows=len(page), written=0), page)
            return
        page = self._page(at, rows)
        after = at.moved(key(page[-1]), rows=len(page), written=0) if page else at.finished()
        self._close(worker, at, after, page)

    def _page(self, at: Position, rows: int) -> list[int]:
        assert at.range is not None
        return within(KeyRange(after=at.cursor, to=at.range.to))[:rows]

    def _close(self, worker: Worker, at: Position, after: Position, page: list[int] | None = None) -> None:
        """Close as a batch does: where its checkpoint moved, it has to be read again, and what was done is undone."""
        step = PAGES_STEP + shard_suffix(worker.number)
        figures = ShardFigures(number=worker.number, status="running", rows=after.rows)
        closed = self.stores.shards.move(
            BatchClose(
                claim=worker.claim,
                run_id=self.run_id,
                step=step,
                expected=at.as_json(),
                value=after.as_json(),
                totals=None,
                shard=figures,
            )
        )
        landed = closed.held and closed.expected
        worker.at = after if landed else None
        self.done.update(page if landed and page else [])

    def _at(self, worker: Worker) -> Position:
        if worker.at is None:
            worker.at = self._stored(worker.number)
        return worker.at

    def _stored(self, number: int) -> Position:
        step = PAGES_STEP + shard_suffix(number)
        kept = self.stores.steps.get(self.run_id, step)
        return as_checkpoint(kept.output, step)

    def _put(self, number: int, at: Position) -> None:
        put = StepPut(
            run_id=self.run_id, name=PAGES_STEP + shard_suffix(number), kind="checkpoint", status="done",
            output=at.as_json(),
        )  # fmt: skip
        self.stores.steps.put(put, self.workers[0].claim)


TestShards = Shards.TestCase
TestShards.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestShards.__doc__ = "N-087, N-119: no key is skipped or repeated, whatever changes hands, crashes or comes back."
