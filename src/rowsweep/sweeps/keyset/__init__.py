"""What is swept and in which order: the table, its key, and pages by keyset."""
