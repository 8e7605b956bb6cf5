"""Webhooks: deliver an event to an endpoint as a job, signed; and verify what was delivered so."""

from rowsweep.webhook.addresses import public_addresses
from rowsweep.webhook.declare import webhook
from rowsweep.webhook.endpoint import Delivery, Endpoint
from rowsweep.webhook.ledger import MemoryWebhookLedger, WebhookLedger
from rowsweep.webhook.signing import sign_webhook, verify_webhook_signature

__all__ = [
    "Delivery", "Endpoint", "MemoryWebhookLedger", "WebhookLedger", "public_addresses", "sign_webhook",
    "verify_webhook_signature", "webhook",
]  # fmt: skip
