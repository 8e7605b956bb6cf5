"""Whom a job acts as: what the declaration answers for an input, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, InvalidInput
from rowsweep.jobs import ambient
from rowsweep.jobs.ambient import Surroundings, inside_run

RUN = Surroundings(job="outer", job_id=1, tenant="outer-shop")


def tenant_of_row(app: rs.App, job: rs.JobHandle[Any, Any], value: Any = None, **given: Any) -> str | None:
    inspection = app.stores().inspection
    assert inspection is not None
    row = inspection.get(job.enqueue(value, **given).id)
    assert row is not None
    return row.tenant_id


def declared() -> rs.JobHandle[Any, Any]:
    return rs.job("send", lambda _ctx, _value: None, tenant=lambda value: f"shop-{value}", input=int)


def test_the_resolver_is_asked_with_the_input() -> None:
    """S-030, S-035."""
    assert declared().tenant_for(7) == "shop-7"


def test_none_leaves_no_tenant() -> None:
    """S-032: nobody's, so that tenant-scoped reads fail closed."""
    assert rs.job("send", lambda _ctx: None, tenant="none").tenant_for(None) is None


@pytest.mark.parametrize("answer", ["", None, 5, b"acme", "nul\x00", "\ud800"])
def test_a_resolver_that_answers_no_text_is_refused(answer: Any) -> None:
    """S-030: rather than run as nobody, or as what no column can hold."""
    job = rs.job("send", lambda _ctx, _value: None, tenant=lambda _value: answer, input=int)
    with pytest.raises(InvalidDeclaration, match="tenant of 'send' must answer") as refused:
        job.tenant_for(1)
    assert refused.value.retry == "terminal"


def test_a_resolver_that_raises_is_the_application_s_error() -> None:
    """S-030: nothing was inserted then."""
    job = rs.job("send", lambda _ctx, _value: None, tenant=lambda value: value["shop"], input=dict[str, str])
    with pytest.raises(KeyError):
        job.enqueue({})


def test_the_row_s_tenant_is_the_option_then_the_run_s_then_the_resolver_s(app: rs.App) -> None:
    """N-011, S-036."""
    job = declared()
    assert tenant_of_row(app, job, 7) == "shop-7"
    with inside_run(RUN):
        assert tenant_of_row(app, job, 7) == "outer-shop"
        assert tenant_of_row(app, job, 7, tenant="given") == "given"
    with inside_run(Surroundings(job="outer", job_id=1, tenant=None)):
        assert tenant_of_row(app, job, 7) == "shop-7"
    nobody = rs.job("tidy", lambda _ctx: None, tenant="none")
    assert tenant_of_row(app, nobody) is None


@pytest.mark.parametrize("tenant", ["", 5, "nul\x00", "t" * 201])
def test_a_tenant_given_to_enqueue_is_text(tenant: Any) -> None:
    """D-37."""
    with pytest.raises(rs.RowsweepError, match="tenant must be text of 1 to 200"):
        declared().enqueue(1, tenant=tenant)


def test_attribution_is_the_actor_s_and_inside_a_run_the_run_s(app: rs.App) -> None:
    """N-011, S-037."""
    job = declared()
    inspection = app.stores().inspection
    assert inspection is not None
    outside = inspection.get(job.enqueue(1).id)
    with inside_run(RUN):
        inside = inspection.get(job.enqueue(2).id)
    assert outside is not None
    assert inside is not None
    assert (outside.enqueued_by, inside.enqueued_by) == ("ann@shop", "job:outer:1")


def test_without_an_actor_it_is_user_at_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-011: also where the user has no name, as in a container."""
    app = rs.connect(driver=rs.MemoryDriver(), work=False)
    try:
        assert ambient.attribution() == ambient.user_at_host()
        user, _, host = ambient.user_at_host().partition("@")
        assert user
        assert host

        def nameless() -> str:
            raise KeyError

        monkeypatch.setattr("getpass.getuser", nameless)
        ambient.user_at_host.cache_clear()
        assert ambient.user_at_host() == f"unknown@{host}"
    finally:
        ambient.user_at_host.cache_clear()
        app.close()


def test_a_refused_input_never_asks_the_resolver() -> None:
    """S-041, S-030."""
    asked: list[Any] = []

    def resolve(value: int) -> str:
        asked.append(value)
        return "acme"

    job = rs.job("send", lambda _ctx, _value: None, tenant=resolve, input=int)
    with pytest.raises(InvalidInput):
        job.enqueue("x")
    assert asked == []
