"""The composition root: the one place that names a concrete driver."""
