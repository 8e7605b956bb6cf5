"""Commands that serve until they are told to stop: the worker, the scheduler, the relay, and all of them in one."""
