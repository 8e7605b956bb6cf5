"""What a driver keeps besides jobs, store by store: the records of each, and its Protocol."""
