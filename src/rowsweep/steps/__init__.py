"""Durable replay: run, checkpoint, sleep and wait for an event."""
