"""Tables of words: one table, and what the commands put into one."""
