"""`rowsweep jobs`: look at jobs, and move them by hand."""
