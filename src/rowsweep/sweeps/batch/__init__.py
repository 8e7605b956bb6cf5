"""One batch: its transaction, what the handler sees, and the write-back."""
