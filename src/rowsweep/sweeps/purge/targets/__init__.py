"""What a purge deletes: targets as they are declared, checked against their database, and counted."""
