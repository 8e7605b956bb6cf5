"""The worker: claim, admit, run, keep the lease, settle, drain."""
