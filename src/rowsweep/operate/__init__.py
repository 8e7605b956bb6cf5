"""Read and steer the queue: list, show, cancel, requeue, promote, pause, counters, health."""
