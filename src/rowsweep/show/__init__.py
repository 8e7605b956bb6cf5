"""Frozen snapshots in; notebook widget, HTML, terminal and plain text out."""
