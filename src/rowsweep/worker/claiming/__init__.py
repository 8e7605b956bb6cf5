"""What the claim loop goes by: how long to wait, and where in a queue to begin."""
