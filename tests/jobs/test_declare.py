"""`job()`: what a declaration takes, and what it refuses at once."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, InvalidOption, TenantRequired
from rowsweep.jobs.registry import registered_jobs


def body(ctx: Any) -> None:
    """Do nothing."""


def test_decorator_and_call_declare_the_same() -> None:
    """S-019."""
    called = rs.job("a", body, tenant="none")
    decorated = rs.job("b", tenant="none")(body)
    assert (called.body, decorated.body) == (body, body)
    assert (called.kind, called.takes_input, called.is_async) == ("job", False, False)


def test_every_option_reaches_the_handle() -> None:
    """S-026."""
    made = rs.job(
        "a",
        lambda _ctx, _value: None,
        tenant=lambda value: f"shop-{value}",
        input=int,
        queue="slow",
        priority=-7,
        key=lambda value: f"k{value}",
        retry=rs.Retry(attempts=2, base="2s"),
        description="text",
    )
    options = made.options
    assert (options.queue, options.priority, options.retry.attempts, options.description) == ("slow", -7, 2, "text")
    assert (made.tenant_for(3), made.takes_input) == ("shop-3", True)


def test_a_coroutine_function_is_known_as_one() -> None:
    """N-008."""

    @rs.job(tenant="none")
    async def work(ctx: rs.Ctx) -> None: ...

    assert work.is_async


@pytest.mark.parametrize("target", [functools.partial(body), type("Callable", (), {"__call__": body})()])
def test_a_callable_without_a_name_may_be_a_body(target: Any) -> None:
    """N-007."""
    assert rs.job(None, target, tenant="none").name == "anonymous-job-1"


def test_a_missing_tenant_is_refused_at_declaration() -> None:
    """S-020, S-030: the backstop behind the type."""
    with pytest.raises(TenantRequired, match="'send' declares no tenant") as refused:
        rs.job("send", body)  # type: ignore[call-overload]
    assert refused.value.code == "X_JOB_TENANT_REQUIRED"
    assert 'tenant="none"' in refused.value.fix
    assert registered_jobs() == []


@pytest.mark.parametrize("tenant", ["acme", "", 5, True, ["none"]])
def test_a_tenant_that_is_no_function_nor_none_is_refused(tenant: Any) -> None:
    """S-030, S-033: a constant cannot be declared by mistake."""
    with pytest.raises(InvalidDeclaration) as refused:
        rs.job("send", body, tenant=tenant)
    assert refused.value.meta["field"] == "tenant"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"retry": 5}, "retry"),
        ({"retries": 5}, "retries"),
        ({"input": object()}, "input"),
        ({"input": "no such type"}, "input"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(given: dict[str, Any], field: str) -> None:
    """S-020."""
    with pytest.raises(InvalidDeclaration) as refused:
        rs.job("send", body, tenant="none", **given)
    assert refused.value.meta["field"] == field
    assert registered_jobs() == []


def yields(ctx: Any) -> Any:
    """Run nothing when it is called."""
    yield 1


async def yields_later(ctx: Any) -> Any:
    """Run nothing when it is called."""
    yield 1


@pytest.mark.parametrize(
    "target", [yields, yields_later, functools.partial(yields), type("Callable", (), {"__call__": yields})()]
)
def test_a_generator_function_is_no_body(target: Any) -> None:
    """S-020: its job would be done with nothing of it run."""
    with pytest.raises(InvalidDeclaration, match="'send' is a generator function") as refused:
        rs.job("send", target, tenant="none")
    assert refused.value.meta["field"] == "body"
    assert registered_jobs() == []


def test_an_unknown_option_is_answered_with_the_near_miss() -> None:
    """S-020, D-37."""
    with pytest.raises(InvalidDeclaration, match="no option 'prioriti'; nearest: priority"):
        rs.job("send", body, tenant="none", prioriti=1)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "given",
    [
        {"priority": 1001},
        {"priority": -1001},
        {"priority": 1.5},
        {"priority": True},
        {"queue": ""},
        {"queue": "*proof"},
        {"queue": "a\nb"},
        {"key": ""},
        {"key": "k" * 201},
        {"key": 5},
        {"key": "nul\x00"},
    ],
)
def test_a_bad_option_is_refused_at_declaration(given: dict[str, Any]) -> None:
    """D-24, D-25, D-37."""
    with pytest.raises(InvalidOption):
        rs.job("send", body, tenant="none", **given)
    assert registered_jobs() == []


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True, "5", float("nan"), 2**31])
def test_attempts_are_a_count_of_at_least_one(attempts: Any) -> None:
    """S-028, S-353."""
    with pytest.raises(InvalidOption, match=r"retry\.attempts"):
        rs.Retry(attempts=attempts)


def test_a_bare_decorator_is_refused() -> None:
    """S-020: `@rs.job` without its options would otherwise answer a function that nobody calls."""
    with pytest.raises(InvalidDeclaration, match="name first"):
        rs.job(body)  # type: ignore[call-overload]


def test_a_body_that_cannot_be_called_is_refused() -> None:
    """S-020."""
    with pytest.raises(InvalidDeclaration) as refused:
        rs.job("send", 5, tenant="none")  # type: ignore[call-overload]
    assert refused.value.meta["field"] == "body"


def test_refusals_name_an_unnamed_job_by_its_function() -> None:
    """S-012, N-007."""

    @rs.job(tenant="none", input=int)
    def double(ctx: rs.Ctx, value: int) -> None: ...

    with pytest.raises(rs.RowsweepError, match="input of 'double'"):
        double.options.input.dump("x")
