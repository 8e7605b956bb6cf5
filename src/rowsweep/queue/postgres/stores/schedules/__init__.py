"""Watermarks of tasks, and who leads the schedulers."""
