"""The outbox on Postgres: its rows, whose database a transaction is of, and outboxes of other databases."""
