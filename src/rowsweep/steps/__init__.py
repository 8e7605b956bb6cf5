"""Durable replay of a run: memoised steps, moving checkpoints, fenced transactions."""
