"""Background work: jobs and the schedule in tables, and the workers that run them.

- `queue`, `worker`: run jobs of the kinds described in `kinds`.
- `runs`: long jobs with a report.
- `schedule`: runs each periodic chore in one process at a time.
- `outbox`: delivers events.
- `background`: runs tasks of one process.
- `dead_holders`: frees the leases of dead processes.
- `backoff`: computes pauses before retries.
- `metrics`: counts jobs for monitoring.

The package knows no family and no HTTP.
"""
