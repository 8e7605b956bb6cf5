"""Sweep large Postgres tables safely, on a durable job system that lives in Postgres."""

from __future__ import annotations

__version__ = "0.1.0"
