"""Everything at a glance, as tables, in a terminal, in a line and as a page."""
