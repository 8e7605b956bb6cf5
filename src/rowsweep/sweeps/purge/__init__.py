"""Purges: what has expired is deleted, target by target, in small batches."""
