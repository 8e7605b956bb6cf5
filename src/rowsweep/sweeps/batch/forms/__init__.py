"""A page of rows in the forms that a handler takes and returns: read, checked, written back."""
