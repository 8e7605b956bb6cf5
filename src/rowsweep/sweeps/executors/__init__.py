"""Handlers that run elsewhere: in a pool of processes, or on a cluster, several pages ahead."""
