"""What the memory driver keeps beside the work: counters, and what the rows that are over are let go by."""
