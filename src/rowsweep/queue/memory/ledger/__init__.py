"""The ledger of sweeps in memory: its rows, how they move with their jobs, and steering."""
