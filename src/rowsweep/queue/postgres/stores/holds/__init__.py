"""What holds work back, on Postgres: slots under caps, and pauses."""
