"""Signatures: both formats, vectors, rotation, tolerance, and the Standard Webhooks library on the other side."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from rowsweep.clock import SystemClock
from rowsweep.errors import InvalidOption, InvalidSignature
from rowsweep.testing.clock import FakeClock
from rowsweep.webhook import sign_webhook, verify_webhook_signature
from rowsweep.webhook.signing import HEADER, STANDARD_HEADER, STANDARD_ID, STANDARD_TIMESTAMP

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"id":"a","event":"paid"}'
AT = datetime(2025, 1, 31, 9, 0, 7, tzinfo=UTC)


def at(instant: datetime) -> FakeClock:
    return FakeClock(instant)


def vectors(kind: str) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS[kind]]


@pytest.mark.parametrize("vector", vectors("signed"))
def test_the_vectors_are_signed_so(vector: dict[str, Any]) -> None:
    """S-368, N-100: bytes that any other implementation can be held against."""
    signed = sign_webhook(
        vector["body"].encode(),
        id=vector["id"],
        at=datetime.fromtimestamp(vector["timestamp"], UTC),
        secrets=vector["secrets"],
        signature=vector["signature"],
    )
    assert signed == vector["headers"]
    for secret in vector["secrets"]:
        instant = datetime.fromtimestamp(vector["timestamp"], UTC)
        assert verify_webhook_signature(vector["body"], vector["headers"], secret, clock=at(instant)) == instant


@pytest.mark.parametrize("vector", vectors("refused"))
def test_the_vectors_that_do_not_stand_are_refused(vector: dict[str, Any]) -> None:
    """D-33: `X_WEBHOOK_SIGNATURE_INVALID`, and no secret in it."""
    clock = at(datetime.fromtimestamp(vector["timestamp"], UTC))
    with pytest.raises(InvalidSignature) as refused:
        verify_webhook_signature(vector["body"], vector["headers"], vector["secrets"], clock=clock)
    assert refused.value.code == "X_WEBHOOK_SIGNATURE_INVALID"
    assert all(secret not in str(refused.value) for secret in vector["secrets"])


@pytest.mark.parametrize("signature", ["standard", "both"])
@settings(max_examples=25)
@given(body=st.text(), message=st.uuids().map(str), key=st.binary(min_size=24, max_size=64))
def test_the_standard_webhooks_library_verifies_ours(signature: Any, body: str, message: str, key: bytes) -> None:
    """N-100."""
    secret = "whsec_" + base64.b64encode(key).decode()
    headers = sign_webhook(
        body.encode("utf-8", "replace"), id=message, at=SystemClock().now(), secrets=[secret], signature=signature
    )
    Webhook(secret).verify(body.encode("utf-8", "replace"), headers, json_parse=False)


@given(
    body=st.text(alphabet=st.characters(codec="utf-8")),
    message=st.uuids().map(str),
    key=st.binary(min_size=24, max_size=64),
)
def test_ours_verifies_what_the_standard_webhooks_library_signed(body: str, message: str, key: bytes) -> None:
    """N-100: with its secret padded or not, and beside one that is no longer ours."""
    secret = "whsec_" + base64.b64encode(key).decode()
    now = SystemClock().now()
    signed = Webhook(secret).sign(message, now, body)
    headers = {"Webhook-Id": message, "Webhook-Timestamp": str(int(now.timestamp())), "Webhook-Signature": signed}
    verify_webhook_signature(body, headers, [SECRET, secret.rstrip("=")])
    with pytest.raises(InvalidSignature):
        verify_webhook_signature(body + " ", headers, secret)


def test_the_library_refuses_what_was_signed_by_another() -> None:
    """N-100: the comparison can fail."""
    headers = sign_webhook(BODY, id="a", at=SystemClock().now(), secrets=[SECRET], signature="standard")
    other = "whsec_" + base64.b64encode(b"x" * 24).decode()
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(BODY, headers)


@pytest.mark.parametrize("signature", ["rowsweep", "standard", "both"])
def test_each_secret_signs_and_any_one_verifies(signature: Any) -> None:
    """N-100: so a secret is replaced without a delivery lost."""
    other = "whsec_" + base64.b64encode(b"n" * 24).decode()
    headers = sign_webhook(BODY, id="a", at=AT, secrets=[SECRET, other], signature=signature)
    for secrets in (SECRET, other, [other], ["unknown", other], [SECRET, other]):
        assert verify_webhook_signature(BODY, headers, secrets, clock=at(AT)) == AT
    with pytest.raises(InvalidSignature):
        verify_webhook_signature(BODY, headers, ["unknown"], clock=at(AT))
    with pytest.raises(InvalidSignature):
        verify_webhook_signature(BODY, headers, [], clock=at(AT))


@pytest.mark.parametrize("signature", ["rowsweep", "standard"])
@pytest.mark.parametrize("seconds", [-301, -300, 0, 300, 301])
def test_the_tolerance_holds_in_both_directions(signature: Any, seconds: int) -> None:
    """D-33: 5 min."""
    headers = sign_webhook(BODY, id="a", at=AT, secrets=[SECRET], signature=signature)
    clock = at(AT + timedelta(seconds=seconds))
    if abs(seconds) <= 300:
        assert verify_webhook_signature(BODY, headers, SECRET, clock=clock) == AT
    else:
        with pytest.raises(InvalidSignature, match="too far from now"):
            verify_webhook_signature(BODY, headers, SECRET, clock=clock)
    assert verify_webhook_signature(BODY, headers, SECRET, clock=clock, tolerance="10m") == AT


def test_headers_come_in_any_case_and_as_a_server_has_them() -> None:
    """S-379: mappings, and pairs of bytes as ASGI gives them."""
    headers = sign_webhook(BODY, id="a", at=AT, secrets=[SECRET], signature="both")
    pairs = [(name.title().encode(), value.encode()) for name, value in headers.items()]
    assert verify_webhook_signature(BODY, pairs, SECRET, clock=at(AT)) == AT
    assert (
        verify_webhook_signature(BODY.decode(), {n.upper(): v for n, v in headers.items()}, SECRET, clock=at(AT)) == AT
    )


@pytest.mark.parametrize("damage", [HEADER, STANDARD_HEADER, STANDARD_ID, STANDARD_TIMESTAMP])
def test_either_of_both_signatures_is_enough(damage: str) -> None:
    """N-100: the verifier takes either."""
    headers = sign_webhook(BODY, id="a", at=AT, secrets=[SECRET], signature="both")
    headers[damage] = "t=1,v1=00"
    assert verify_webhook_signature(BODY, headers, SECRET, clock=at(AT)) == AT


@settings(max_examples=50)
@given(headers=st.dictionaries(st.sampled_from([HEADER, STANDARD_HEADER, STANDARD_ID, STANDARD_TIMESTAMP]), st.text()))
def test_no_header_brings_anything_but_a_refusal(headers: dict[str, str]) -> None:
    """D-33: whatever a stranger sends."""
    with pytest.raises(InvalidSignature):
        verify_webhook_signature(BODY, headers, [SECRET, "plain"])


@pytest.mark.parametrize("secret", ["plain", "whsec_", "whsec_not base64", "whsec_%%%%"])
def test_a_secret_of_another_form_signs_no_standard_signature(secret: str) -> None:
    """N-100: refused without being shown; our own format takes any text."""
    with pytest.raises(InvalidOption) as refused:
        sign_webhook(BODY, id="a", at=AT, secrets=[secret], signature="standard")
    assert secret == "whsec_" or secret not in str(refused.value)
    assert sign_webhook(BODY, id="a", at=AT, secrets=[secret])
