"""Live views for notebooks: widgets that one thread of the process keeps up to date."""
