"""Late commits: rows whose transactions were still open when a pass went by them, and the proof that none is left."""
