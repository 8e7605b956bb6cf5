"""What is kept beside the work on Postgres: counters, and what the rows that are over are let go by."""
