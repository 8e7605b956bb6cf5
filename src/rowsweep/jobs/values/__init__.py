"""Values on their way into the database and back: inputs by their declared type, and the JSON form of all."""
