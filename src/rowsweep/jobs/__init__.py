"""What an application declares: jobs, tasks, their retry policy, tenant and concurrency."""
