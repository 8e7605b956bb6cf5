"""Sweeps: rows into keyset pages, pages into batches, batches into a ledger."""
