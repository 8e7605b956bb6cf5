"""One sweep by several jobs: each passes its own ranges of the keys, then half of what another has left."""
