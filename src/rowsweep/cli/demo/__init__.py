"""The guided demo: a backfill that is killed, goes on, and is proved to have written every row once."""
