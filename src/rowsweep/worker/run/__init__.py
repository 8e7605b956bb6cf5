"""One run: a claimed job's body from its input to its verdict, and the threads it runs on."""
