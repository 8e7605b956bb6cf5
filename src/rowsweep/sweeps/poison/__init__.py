"""Rows that fail by themselves: find them in a failing batch, set them aside, and try them again on their own."""
