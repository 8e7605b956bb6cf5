"""Signatures: header names, canonical strings and macs, for the sender and for whoever verifies."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from rowsweep.clock import SystemClock
from rowsweep.errors import InvalidOption, InvalidSignature
from rowsweep.options import duration
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from rowsweep.clock import Clock

SignatureFormat = Literal["rowsweep", "standard", "both"]
FORMATS: Final[tuple[SignatureFormat, ...]] = ("rowsweep", "standard", "both")
HEADER: Final = "x-rowsweep-webhook-signature"
# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
STANDARD_ID: Final = "webhook-id"
STANDARD_TIMESTAMP: Final = "webhook-timestamp"
STANDARD_HEADER: Final = "webhook-signature"
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what every secret of that form begins with
TOLERANCE: Final = "5m"
_SECONDS: Final = re.compile(r"[0-9]{1,11}")

_Made = Callable[[str, bytes], bytes | None]
Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]


@spelled
def sign_webhook(
    body: bytes, *, id: str, at: datetime, secrets: Sequence[str], signature: SignatureFormat = "rowsweep"
) -> dict[str, str]:
    """Answer the headers that sign a body at an instant, by each of the secrets.

    `rowsweep` takes a secret's text as its key, `standard` the base64 behind `whsec_`; InvalidOption for another one.
    """
    seconds = int(at.timestamp())
    headers: dict[str, str] = {}
    if signature in ("rowsweep", "both"):
        macs = ",".join(f"v1={_own_mac(secret, seconds, body)}" for secret in secrets)
        headers[HEADER] = f"t={seconds},{macs}"
    if signature in ("standard", "both"):
        macs = " ".join(f"v1,{_standard_mac(secret, id, str(seconds), body)}" for secret in secrets)
        headers |= {STANDARD_ID: id, STANDARD_TIMESTAMP: str(seconds), STANDARD_HEADER: macs}
    return headers


@spelled
def verify_webhook_signature(
    body: bytes | str,
    headers: Headers,
    secrets: str | Sequence[str],
    *,
    tolerance: str | timedelta = TOLERANCE,
    clock: Clock | None = None,
) -> datetime:
    """Answer when a delivery was signed; InvalidSignature unless one of the secrets signed this very body lately.

    `body` is what was received, before any parsing. Takes either form of signature. `tolerance` holds in both
    directions; within it a delivery can be replayed, so remember the `id` in the body.
    """
    raw = body.encode() if isinstance(body, str) else bytes(body)
    given = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    lower = {_text(name).lower(): _text(value) for name, value in _pairs(headers)}
    signed = [found for found in (_own(lower), _standard(lower)) if found is not None]
    now = (clock or SystemClock()).now()
    longest = duration(tolerance, option="tolerance")
    for seconds, macs, made in signed:
        is_ours = _any_equal([made(secret, raw) for secret in given], macs)
        at = datetime.fromtimestamp(seconds, UTC)
        if is_ours and abs(now - at) <= longest:
            return at
        if is_ours:
            raise _refused(f"it was signed at {at:%Y-%m-%dT%H:%M:%SZ}, too far from now ({now:%Y-%m-%dT%H:%M:%SZ})")
    raise _refused("no secret made it" if signed else "there is none that can be read in the headers")


def _own(headers: Mapping[str, str]) -> tuple[int, list[bytes], _Made] | None:
    fields = [part.strip().partition("=") for part in headers.get(HEADER, "").split(",")]
    times = [value for name, _, value in fields if name == "t"]
    macs = [value.encode() for name, _, value in fields if name == "v1"]
    if len(times) != 1 or not macs or not _SECONDS.fullmatch(times[0]):
        return None
    seconds = int(times[0])
    return seconds, macs, lambda secret, body: _own_mac(secret, seconds, body).encode()


def _standard(headers: Mapping[str, str]) -> tuple[int, list[bytes], _Made] | None:
    message, at = headers.get(STANDARD_ID, ""), headers.get(STANDARD_TIMESTAMP, "")
    versions = [part.partition(",") for part in headers.get(STANDARD_HEADER, "").split(" ")]
    macs = [mac.encode() for version, _, mac in versions if version == "v1" and mac]
    if not message or not macs or not _SECONDS.fullmatch(at):
        return None

    def made(secret: str, body: bytes) -> bytes | None:
        return None if _key(secret) is None else _standard_mac(secret, message, at, body).encode()

    return int(at), macs, made


def _own_mac(secret: str, seconds: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()


def _standard_mac(secret: str, message: str, seconds: str, body: bytes) -> str:
    key = _key(secret)
    if key is None:
        raise InvalidOption(
            "a secret of a Standard Webhooks signature must be whsec_ and base64; one is not.",
            fix='secrets=["whsec_" + base64.b64encode(os.urandom(24)).decode()], or signature="rowsweep"',
            meta={"option": "secrets"},
        )
    mac = hmac.new(key, f"{message}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return base64.b64encode(mac).decode()


def _key(secret: str) -> bytes | None:
    """Answer the key behind `whsec_`, padded or not; None for a secret of another form."""
    if not secret.startswith(SECRET_PREFIX):
        return None
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _any_equal(made: Sequence[bytes | None], given: Sequence[bytes]) -> bool:
    """Compare each with each, in a time that says nothing of how much of a mac fits."""
    return sum(hmac.compare_digest(one, other) for one in made if one is not None for other in given) > 0


def _pairs(headers: Headers) -> Iterable[tuple[str | bytes, str | bytes]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _refused(why: str) -> InvalidSignature:
    return InvalidSignature(
        f"the webhook's signature does not stand: {why}.",
        fix="the endpoint's own secret, a clock that is right, and the raw body as received, before any JSON parsing",
    )
