"""What holds work back, in memory: slots under caps, and pauses."""
