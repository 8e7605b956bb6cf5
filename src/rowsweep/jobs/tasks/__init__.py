"""What an application puts on a clock: `task()`, its registry, and the occurrences of a cron in a zone."""
