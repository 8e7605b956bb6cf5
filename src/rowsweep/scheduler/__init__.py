"""Scheduled tasks: rounds, catch-up and the leader's lease."""
