"""The wake: hearing of commits made elsewhere, over one session of a process."""
