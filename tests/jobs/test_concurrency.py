"""Declared concurrency: what may be declared, and the key that a job is enqueued under."""

from __future__ import annotations

import math
import pickle
from typing import Any
from uuid import UUID

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, KeyBusy, SlotLost
from rowsweep.jobs.concurrency import Cap, Keyed, key_busy, lease_key, slot_lost, unenforceable
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.request import EnqueueOptions

JOB_ID = UUID(int=7)


def declared(concurrency: Any) -> JobHandle[int, None]:
    """Declare a job with this concurrency."""

    @job("mail", tenant="none", input=int, concurrency=concurrency)
    def mail(ctx: Ctx, value: int) -> None: ...

    return mail


def test_a_count_a_keyed_cap_or_one_of_each_can_be_declared() -> None:
    """S-026, D-13: the plain slot comes first."""
    keyed = Keyed(str, 2, "fail")
    plain = [Cap(name="mail", limit=3)]
    by_key = [Cap(name="mail", limit=2, key="k", when_busy="fail")]
    assert declared(None).concurrency.caps("mail", None) == []
    assert declared(3).concurrency.caps("mail", None) == plain
    assert declared(keyed).concurrency.caps("mail", "k") == by_key
    for both in ((3, keyed), (keyed, 3)):
        assert declared(both).concurrency.caps("mail", "k") == plain + by_key


def test_a_row_without_a_key_is_under_no_keyed_cap() -> None:
    """D-13: such a row was enqueued before the cap was declared."""
    assert declared(Keyed(str)).concurrency.caps("mail", None) == []


@pytest.mark.parametrize("limit", [0, -1, 1.5, math.nan, math.inf, "2", True, 2**31])
def test_a_limit_that_is_no_count_is_refused(limit: Any) -> None:
    """S-345, S-353: at the declaration, naming the field."""
    for concurrency in (lambda: limit, lambda: Keyed(str, limit), lambda: (limit, Keyed(str))):
        with pytest.raises(InvalidDeclaration) as refused:
            declared(concurrency())
        assert refused.value.meta["field"] == "concurrency"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Keyed("shop"),  # type: ignore[arg-type]
        lambda: Keyed(str, 1, "queue"),  # type: ignore[arg-type]
        lambda: (1, 2),
        lambda: (Keyed(str), Keyed(str)),
        lambda: (),
        lambda: (1, Keyed(str), 3),
    ],
)
def test_a_key_that_is_no_function_and_other_shapes_are_refused(make: Any) -> None:
    """S-345, D-13."""
    with pytest.raises(InvalidDeclaration):
        declared(make())


def test_the_key_is_computed_when_the_job_is_enqueued() -> None:
    """S-053: from the parsed input, by the one path that every enqueue takes."""
    handle = declared(Keyed(lambda value: f"shop-{value + 1}"))
    assert handle.request(41, EnqueueOptions()).concurrency_key == "shop-42"
    assert declared(4).request(41, EnqueueOptions()).concurrency_key is None


@pytest.mark.parametrize("answer", ["", None, 7, b"k", "x" * 201, "a\x00b"])
def test_a_key_that_is_no_short_text_refuses_that_enqueue(answer: Any) -> None:
    """S-346, S-053: and no other."""
    handle = declared(Keyed(lambda value: answer if value else "fine"))
    with pytest.raises(InvalidDeclaration):
        handle.request(1, EnqueueOptions())
    assert handle.request(0, EnqueueOptions()).concurrency_key == "fine"


def test_lease_keys_come_from_one_function() -> None:
    """S-334, D-13: a name holds no colon, so no plain key is another's keyed one."""
    assert (lease_key("mail"), lease_key("mail", "a:b")) == ("job:mail", "job:mail:a:b")
    assert Cap(name="mail", limit=1, key="k").lease_key == "job:mail:k"


def test_refusals_carry_what_they_are_about() -> None:
    """S-349, S-341, S-347, S-344: and survive pickling."""
    busy = key_busy(Cap(name="mail", limit=1, key="k", when_busy="fail"), JOB_ID)
    lost = slot_lost("mail", JOB_ID, "job:mail", 2, "it expired")
    none = unenforceable("toy", ["mail", "post"])
    assert (busy.code, busy.retry, lost.code, lost.retry) == (
        "X_JOB_KEY_BUSY",
        "terminal",
        "X_JOB_SLOT_LOST",
        "retryable",
    )
    assert lost.meta == {"job": "mail", "job_id": str(JOB_ID), "lease_key": "job:mail", "slot": 2}
    assert none.code == "X_JOB_CONCURRENCY_UNENFORCEABLE"
    assert none.meta["names"] == ["mail", "post"]
    assert isinstance(pickle.loads(pickle.dumps(busy)), KeyBusy)
    assert isinstance(pickle.loads(pickle.dumps(lost)), SlotLost)


def test_a_declaration_describes_its_caps() -> None:
    """S-025."""
    assert declared(None).describe()["concurrency"] is None
    shown = declared((3, Keyed(str, 2, "fail"))).describe()["concurrency"]
    assert shown == {"limit": 3, "keyed": {"limit": 2, "when_busy": "fail"}}


def test_a_sweep_holds_the_key_of_its_input() -> None:
    """N-073: two runs over one input have one key, over different ones different keys."""
    sweep = rs.backfill("totals", rows=rs.Rows("orders"), set={"n": "1"}, input=dict[str, int] | None)
    one, same, other = (sweep.request(value, EnqueueOptions()) for value in ({"a": 1}, {"a": 1}, None))
    assert one.concurrency_key == same.concurrency_key != other.concurrency_key
    assert one.idempotency_key != same.idempotency_key
    (cap,) = sweep.concurrency.caps(sweep.name, one.concurrency_key)
    assert (cap.limit, cap.when_busy) == (1, "wait")
    assert cap.lease_key == f"job:totals:{sweep.launch_key({'a': 1}).rpartition(':')[2]}"


def test_a_sweep_takes_a_plain_cap_but_no_key_of_the_application() -> None:
    """N-073: the key it has is the sweep's own."""
    sweep = rs.backfill("capped", rows=rs.Rows("orders"), set={"n": "1"}, concurrency=2)
    request = sweep.request(None, EnqueueOptions())
    assert [cap.limit for cap in sweep.concurrency.caps("capped", request.concurrency_key)] == [2, 1]
    with pytest.raises(InvalidDeclaration):
        rs.backfill("keyed", rows=rs.Rows("orders"), set={"n": "1"}, concurrency=Keyed(str))  # type: ignore[call-overload]
