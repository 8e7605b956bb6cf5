"""Frozen snapshots in; notebook, HTML, terminal and plain text out."""

from __future__ import annotations

from rowsweep.show.html.bundle import bundle

__all__ = ["bundle"]
