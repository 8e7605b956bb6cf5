"""Enqueue inside the caller's transaction, and the relay that publishes what was staged."""
