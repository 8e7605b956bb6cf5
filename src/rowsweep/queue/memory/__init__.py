"""The queue's stores in this process's memory."""
