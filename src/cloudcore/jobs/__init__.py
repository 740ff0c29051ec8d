"""Background work: jobs and the schedule in tables, and the workers that run them.

`queue` and `worker` run jobs of `kinds`, `runs` are long jobs with a report, `schedule` runs chores
once for all processes, `outbox` delivers events, `background` runs tasks of one process,
`dead_holders` frees the leases of dead processes, `backoff` has the pauses before retries,
`metrics` what metrics show. It knows no family and no HTTP.
"""
