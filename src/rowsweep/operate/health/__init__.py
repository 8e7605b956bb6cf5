"""What is wrong with a queue, and what to do about it."""
