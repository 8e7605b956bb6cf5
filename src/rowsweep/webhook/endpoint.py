"""Where an event is delivered to, and the record of one attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID

from rowsweep.errors import InvalidOption
from rowsweep.spelling import spelled

Outcome = Literal["delivered", "failed", "throttled"]


@spelled
@dataclass(frozen=True, slots=True)
class Endpoint:
    """Say where to deliver: an id for the records, the URL, and the secrets that sign, each of them.

    A new secret is added beside the old one, which is removed once the receiver verifies by the new. Neither URL nor
    secrets are shown, logged or stored; only the id is.
    """

    id: str
    url: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False)
    disabled: bool = False

    def __post_init__(self) -> None:
        name: object = self.id
        if not isinstance(name, str) or not name:
            raise _refused("?", "id", "a text that is not empty")
        given: tuple[object, ...] = (self.secrets,) if isinstance(self.secrets, str) else tuple(self.secrets)
        object.__setattr__(self, "secrets", given)
        if not given or not all(isinstance(secret, str) and secret for secret in given):
            raise _refused(self.id, "secrets", "one text or more, none of them empty")
        if not _is_address(self.url):
            raise _refused(self.id, "url", "an http or https URL with a host, without user, password and fragment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Record one attempt; `status` is the HTTP status, None where none came."""

    endpoint_id: str
    job_id: UUID
    event: str
    attempt: int
    at: datetime
    duration_ms: int
    status: int | None
    outcome: Outcome
    error: str | None


def _is_address(url: object) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    is_plain = parts.username is None and parts.password is None and not parts.fragment
    return parts.scheme in ("http", "https") and bool(host) and port != 0 and is_plain and url.isprintable()


def _refused(endpoint: str, option: str, expected: str) -> InvalidOption:
    """Refuse without showing what came: it may be a secret."""
    return InvalidOption(
        f"{option} of the endpoint {endpoint!r:.80} must be {expected}.",
        fix='Endpoint(id="shop-7", url="https://…", secrets=["whsec_…"])',
        meta={"option": option, "endpoint": endpoint},
    )
