"""Queues that are measured alike, each in a process of its own."""
