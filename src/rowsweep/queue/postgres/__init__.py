"""The queue's stores on Postgres."""
