"""The formats of an export's parts: options, checked early, and the writer of each."""
