"""Helpers for users' own tests: run inline, interrupt after n batches, fake clock."""
