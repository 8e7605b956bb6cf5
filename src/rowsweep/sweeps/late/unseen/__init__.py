"""Rows that came behind a sweep, told from those it did by a snapshot of its end."""
