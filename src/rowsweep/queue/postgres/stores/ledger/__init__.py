"""The ledger of sweeps on Postgres: its rows, what steers them, and the rows that runs set aside."""
