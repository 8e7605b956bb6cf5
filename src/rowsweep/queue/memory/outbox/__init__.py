"""The outbox in memory."""
