"""What becomes of an attempt: what its error means, when the next one is due, how it is written down and told."""
