"""Random operations against a small model of one queue: every answer and every row must agree."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from rowsweep.errors import DuplicateJob, LeaseLost, NotPromotable, NotRemovable, NotRequeueable
from rowsweep.queue.records import FINISHED_STATES, JOB_STATES, LIVE_STATES, WAITING_STATES, Claim, JobFilter
from rowsweep.queue.selection import PROMOTABLE_STATES, JobSet
from rowsweep.queue.verdicts import Bury, Defer, Done, Drop, GiveBack, Park, Refuse, Retry, Settlement, Shed, Verdict
from tests.queue.conftest import empty_world
from tests.queue.models.machine import LEASE_STEPS, STEP_SECONDS, ModelledQueue, Row
from tests.queue.world import ERROR, ids_of, new_job, step_put

NAMES = ("a", "b")
PAIRS = st.sampled_from([("default", None), (None, "a"), (None, "b"), ("default", "a")])
SOME_NAME = st.sampled_from([None, *NAMES])
LIMITS = st.integers(0, 3)
KEYS = st.sampled_from([None, "k1", "k2"])
COUNTER_OF: dict[type[Verdict], str] = {
    Done: "completed", Retry: "retried", Defer: "deferred", Bury: "dead", Drop: "dropped", Refuse: "refused"
}  # fmt: skip
VERDICTS: list[Verdict] = [
    Done(result=1),
    Retry(delay_seconds=STEP_SECONDS, error=ERROR),
    Retry(delay_seconds=0, error=ERROR),
    Defer(delay_seconds=2 * STEP_SECONDS, error=ERROR),
    Park(delay_seconds=2 * STEP_SECONDS),
    Shed(delay_seconds=STEP_SECONDS, reason="full"),
    GiveBack(),
    Bury(error=ERROR),
    Drop(error=ERROR),
    Refuse(error=ERROR),
]


class QueueMachine(ModelledQueue):
    """Drive one driver and the model side by side."""

    @initialize(names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=5))
    def begin(self, names: list[str]) -> None:
        self.world = type(self).world_of()
        for name in names:
            self.enqueue(name, None, 0, 0)

    @rule(
        name=st.sampled_from(NAMES), key=KEYS, priority=st.sampled_from([0, 0, 5]), delay=st.sampled_from([0, 0, 1, 3])
    )
    def enqueue(self, name: str, key: str | None, priority: int, delay: int) -> None:
        changes = {} if key is None else {"idempotency_key": key}
        request = new_job(name, priority=priority, max_attempts=2, delay_seconds=delay * STEP_SECONDS, **changes)
        (answer,) = self.world.jobs.enqueue([request])
        standing = self._live(name, request.idempotency_key)
        assert answer.deduplicated is (standing is not None)
        assert answer.id == (standing or request.id)
        if standing is None:
            made = self._tick()
            row = Row(name, request.idempotency_key, priority, 2, request.run_id, self.now + delay, made, made)
            row.state = "delayed" if delay else "ready"
            self.rows[request.id] = row
        assert answer.state == self.rows[answer.id].state

    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        limit=st.integers(0, 4),
        worker=st.sampled_from(["w1", "w2"]),
        lapsed=st.booleans(),
        drops=st.booleans(),
    )
    def claim(self, names: set[str], limit: int, worker: str, lapsed: bool, drops: bool) -> None:
        seconds = LEASE_STEPS * STEP_SECONDS
        claimed = self.world.claim(
            *sorted(names),
            limit=limit,
            worker=worker,
            lapsed=lapsed,
            visibility_seconds=seconds,
            drop_exhausted=["b"] if drops else [],
            few=worker == "w1",
        )
        mine = {job_id: row for job_id, row in self.rows.items() if row.name in names and not self._is_paused(row)}
        found = sorted(j for j, r in mine.items() if lapsed and r.state == "running" and self._is_past(r.visible_at))
        found = found[:limit]
        buried = [job_id for job_id in found if mine[job_id].attempt >= mine[job_id].max_attempts]
        retaken = [job_id for job_id in found if job_id not in buried]
        due = sorted(
            (j for j, r in mine.items() if r.state in WAITING_STATES and r.run_at <= self.now), key=self._order
        )
        taken = claimed.jobs
        assert set(ids_of(claimed.buried)) == set(buried)
        assert set(ids_of(taken[: len(retaken)])) == set(retaken)
        fresh = ids_of(taken[len(retaken) :])
        assert fresh == due[: len(fresh)]
        assert len(fresh) == min(len(due), limit - len(retaken))
        for job_id in buried:
            is_dropped = drops and self.rows[job_id].name == "b"
            self._end(job_id, "failed" if is_dropped else "dead")
            self.counted[self.rows[job_id].name, "dropped" if is_dropped else "dead"] += 1
        for job in taken:
            row = self.rows[job.id]
            row.state, row.holder, row.visible_at = "running", worker, self.now + LEASE_STEPS
            row.attempt, row.claims = row.attempt + 1, row.claims + 1
            self.claims.append(Claim(job_id=job.id, worker_id=worker, claim=row.claims))

    @rule(verdicts=st.lists(st.sampled_from(VERDICTS), min_size=1, max_size=3), lapsed=st.booleans())
    def work(self, verdicts: list[Verdict], lapsed: bool) -> None:
        """Claim and settle what was claimed, which single rules in a row rarely do."""
        known = len(self.claims)
        self.claim(set(NAMES), len(verdicts), "w1", lapsed, drops=False)
        group = {
            claim.job_id: Settlement(claim=claim, verdict=verdict)
            for claim, verdict in zip(self.claims[known:], verdicts, strict=False)
        }
        self._settle(group)

    @rule(steps=st.integers(LEASE_STEPS, LEASE_STEPS + 1), drops=st.booleans())
    def crash(self, steps: int, drops: bool) -> None:
        """Let a worker claim and be gone, and another find what it left."""
        self.claim(set(NAMES), 2, "w2", lapsed=True, drops=drops)
        self.pass_time(steps)
        self.claim(set(NAMES), 2, "w1", lapsed=True, drops=drops)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), verdicts=st.lists(st.sampled_from(VERDICTS), min_size=1, max_size=3))
    def settle(self, data: st.DataObject, verdicts: list[Verdict]) -> None:
        group: dict[UUID, Settlement] = {}
        for verdict in verdicts:
            claim = self._some_claim(data)
            if claim is not None:
                group.setdefault(claim.job_id, Settlement(claim=claim, verdict=verdict))
        self._settle(group)

    def _settle(self, group: dict[UUID, Settlement]) -> None:
        held = [self._holds(settlement.claim) for settlement in group.values()]
        assert self.world.jobs.settle(list(group.values())) == held
        self._tick()  # one statement, one instant
        for settlement, is_held in zip(group.values(), held, strict=True):
            if is_held:
                self._apply(settlement.claim.job_id, settlement.verdict)
                if counter := COUNTER_OF.get(type(settlement.verdict)):
                    self.counted[self.rows[settlement.claim.job_id].name, counter] += 1

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        drawn = [claim for _ in range(2) if (claim := self._some_claim(data)) is not None]
        claims = list({claim.job_id: claim for claim in drawn}.values())
        held = [self._holds(claim) for claim in claims]
        assert self.world.jobs.renew(claims, visibility_seconds=LEASE_STEPS * STEP_SECONDS) == held
        for claim, is_held in zip(claims, held, strict=True):
            if is_held:
                self.rows[claim.job_id].visible_at = self.now + LEASE_STEPS

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), name=st.sampled_from(["s1", "s2"]), output=st.integers(0, 9))
    def put_step(self, data: st.DataObject, name: str, output: int) -> None:
        claim = self._some_claim(data)
        row = self.rows.get(claim.job_id) if claim else None
        if claim is None or row is None:
            return
        put = step_put(self.world.job(claim.job_id), name, output=output)
        if self._holds(claim):
            assert self.world.steps.put(put, claim).output == output
            row.steps[name] = output
        else:
            with pytest.raises(LeaseLost):
                self.world.steps.put(put, claim)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = self._some_job(data)
        if job_id is not None:
            is_live = self.rows[job_id].state in LIVE_STATES
            assert (self.world.steering.cancel(job_id) is not None) is is_live
            if is_live:
                self._end(job_id, "cancelled")

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        job_id = self._some_job(data)
        if job_id is None:
            return
        row = self.rows[job_id]
        if row.state in LIVE_STATES:
            with pytest.raises(NotRequeueable):
                self.world.steering.requeue(job_id)
        elif self._live(row.name, row.key) is not None:
            with pytest.raises(DuplicateJob):
                self.world.steering.requeue(job_id)
        else:
            self.world.steering.requeue(job_id)
            self._requeued(row)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        job_id = self._some_job(data)
        if job_id is None:
            return
        row = self.rows[job_id]
        if self._waits_for_its_time(row):
            assert self.world.steering.promote(job_id).state == "ready"
            self._promoted(row)
        else:
            with pytest.raises(NotPromotable):
                self.world.steering.promote(job_id)

    @rule(name=st.sampled_from(NAMES), times=st.integers(1, 2))
    def enqueue_and_cancel(self, name: str, times: int) -> None:
        """Bring about several finished rows with one key, which single rules rarely do."""
        for _ in range(times):
            (answer,) = self.world.jobs.enqueue([request := new_job(name, idempotency_key="k1", max_attempts=2)])
            if not answer.deduplicated:
                self.rows[answer.id] = Row(name, "k1", 0, 2, request.run_id, self.now, self._tick(), self.moves)
                assert self.world.steering.cancel(answer.id) is not None
                self._end(answer.id, "cancelled")

    @rule(state=st.sampled_from([None, "dead", "done", "cancelled"]), name=SOME_NAME, limit=LIMITS)
    def requeue_many(self, state: Any, name: str | None, limit: int) -> None:
        oldest: dict[tuple[str, str], UUID] = {}
        for job_id, row in sorted(self.rows.items(), key=lambda item: item[1].made):
            if row.state in FINISHED_STATES and self._is_chosen(row, state, name) and not self._live(row.name, row.key):
                oldest.setdefault((row.name, row.key), job_id)
        verb = self.world.steering.requeue_many
        for job_id in self._moved(verb(JobSet(state=state, name=name), limit=limit), set(oldest.values()), limit):
            self._requeued(self.rows[job_id])

    @rule(state=st.sampled_from([None, *PROMOTABLE_STATES]), name=SOME_NAME, limit=LIMITS)
    def promote_many(self, state: Any, name: str | None, limit: int) -> None:
        waiting = {j for j, r in self.rows.items() if self._waits_for_its_time(r) and self._is_chosen(r, state, name)}
        verb = self.world.steering.promote_many
        for job_id in self._moved(verb(JobSet(state=state, name=name), limit=limit), waiting, limit):
            self._promoted(self.rows[job_id])

    @rule(state=st.sampled_from([None, "ready", "dead", "done"]), name=SOME_NAME, limit=LIMITS)
    def remove_many(self, state: Any, name: str | None, limit: int) -> None:
        removable = {j for j, r in self.rows.items() if r.state != "running" and self._is_chosen(r, state, name)}
        verb = self.world.steering.remove_many
        for job_id in self._moved(verb(JobSet(state=state, name=name), limit=limit), removable, limit):
            assert self.world.steps.list(self.rows.pop(job_id).run_id) == []

    @rule(pairs=st.lists(PAIRS, min_size=1, max_size=3))
    def pause(self, pairs: list[tuple[str | None, str | None]]) -> None:
        for pair in pairs:
            stands = self.world.pauses.pause(queue=pair[0], name=pair[1])
            assert (stands.queue, stands.name) == pair
            self.pauses.add(pair)

    @rule(pair=PAIRS)
    def resume(self, pair: tuple[str | None, str | None]) -> None:
        assert self.world.pauses.resume(queue=pair[0], name=pair[1]) is (pair in self.pauses)
        self.pauses.discard(pair)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        job_id = self._some_job(data)
        if job_id is None:
            return
        if self.rows[job_id].state == "running":
            with pytest.raises(NotRemovable):
                self.world.steering.remove(job_id)
        else:
            assert self.world.steering.remove(job_id) is True
            assert self.world.steps.list(self.rows.pop(job_id).run_id) == []

    @rule(steps=st.integers(1, 3))
    def pass_time(self, steps: int) -> None:
        self.world.hands.pass_time(steps * STEP_SECONDS)
        self.now += steps

    @invariant()
    def rows_agree(self) -> None:
        jobs = self.world.inspection.list(JobFilter(), limit=1000)
        assert {job.id for job in jobs} == set(self.rows)
        for job in jobs:
            row = self.rows[job.id]
            assert (job.state, job.attempt, job.claims) == (row.state, row.attempt, row.claims)
            assert (job.claimed_by, job.visible_at is None) == (row.holder, row.visible_at is None)
            assert (row.state == "running") is (job.claimed_by is not None)

    @invariant()
    def running_rows_are_found(self) -> None:
        running = {job.id for job in self.world.inspection.list(JobFilter(state="running"), limit=1000)}
        assert running == {job_id for job_id, row in self.rows.items() if row.state == "running"}

    @invariant()
    def steps_agree(self) -> None:
        for row in self.rows.values():
            assert {step.name: step.output for step in self.world.steps.list(row.run_id)} == row.steps

    @invariant()
    def pauses_agree(self) -> None:
        assert {(pause.queue, pause.name) for pause in self.world.pauses.list()} == self.pauses

    @invariant()
    def counters_agree(self) -> None:
        found: Counter[tuple[str, str]] = Counter()
        for bucket in self.world.counters.list():
            found.update({(bucket.name, counter): getattr(bucket, counter) for counter in COUNTER_OF.values()})
        assert found == self.counted

    @invariant()
    def stats_agree(self) -> None:
        counted = {state: sum(getattr(stats, state) for stats in self.world.jobs.stats()) for state in JOB_STATES}
        expected = dict.fromkeys(JOB_STATES, 0)
        for row in self.rows.values():
            is_due = row.run_at <= self.now
            expected["ready" if row.state == "delayed" and is_due else row.state] += 1  # type: ignore[index]
        assert counted == expected


@pytest.mark.parametrize(
    ("kind", "examples"), [("memory", 100), ("postgres", 15), pytest.param("postgres", 50, marks=pytest.mark.slow)]
)
def test_random_operations_agree_with_a_small_model(kind: str, examples: int, request: pytest.FixtureRequest) -> None:
    """S-069, S-078, S-099, S-102, S-111, S-396…S-399, S-404…S-406, N-033, D-19.

    Whatever is done in whatever order, every answer and row is the model's.
    """
    run_state_machine_as_test(
        type("Machine", (QueueMachine,), {"world_of": staticmethod(lambda: empty_world(kind, request))}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
