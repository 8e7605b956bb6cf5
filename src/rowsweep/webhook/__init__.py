"""Webhooks: delivery as a job, signing and verification."""
