"""What a column of a table becomes in a file: chosen from the catalog, never from the values."""
