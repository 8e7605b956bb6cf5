"""How statements go out: loaded by name, prepared, several in a message, their values and answers in fixed forms."""
