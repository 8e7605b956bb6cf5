"""Work that leaves with an application's transaction: enqueues inside one, and the relay of what they staged."""
