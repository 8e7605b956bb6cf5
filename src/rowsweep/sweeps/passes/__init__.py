"""The pass: what every run of a sweep does around its batches, and the pass over a table."""
