"""Whom a job acts as: the declared tenant, a function of the input or nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rowsweep.errors import InvalidDeclaration, TenantRequired
from rowsweep.telemetry.text import is_storable

Tenant = Callable[[Any], str] | Literal["none"]


def check_tenant(tenant: object, *, job: str | None) -> Tenant:
    """Refuse a declaration without a tenant, or with one that is neither a function nor `"none"`."""
    if tenant is None:
        raise TenantRequired(
            f"The job {job or '(unnamed)'!r} declares no tenant.",
            fix='tenant="none", or a function of the input such as tenant=lambda order: order.shop',
            meta={"job": job},
        )
    if isinstance(tenant, str) and tenant == "none":
        return "none"
    if callable(tenant):
        return tenant
    raise InvalidDeclaration(
        f'tenant of {job or "(unnamed)"!r} must be a function of the input or "none"; got {tenant!r:.80}.',
        fix='tenant="none"',
        meta={"job": job, "field": "tenant"},
    )


def tenant_of(tenant: Tenant, value: Any, *, job: str) -> str | None:
    """Answer the tenant that a run over this input acts as; None for `"none"`."""
    if tenant == "none":
        return None
    answer: object = tenant(value)
    if not (isinstance(answer, str) and answer and is_storable(answer)):
        raise InvalidDeclaration(
            f"tenant of {job!r} must answer a non-empty text for the input; got {answer!r:.80}.",
            fix="tenant=lambda input: input.shop",
            meta={"job": job, "field": "tenant"},
        )
    return answer
