"""The composition root: the one room that names a concrete driver."""
