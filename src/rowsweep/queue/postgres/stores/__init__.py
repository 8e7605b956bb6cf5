"""The stores on Postgres, each beside the file of its statements."""
