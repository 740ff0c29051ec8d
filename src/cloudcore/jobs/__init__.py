"""Background work: jobs and the schedule in tables, and the workers that run them.

`queue` and `worker` run jobs of `kinds`, `runs` are long jobs with a report, `schedule` runs chores
once for all processes, `outbox` delivers events, `background` runs tasks of one process,
`dead_holders` frees what died with a process. It knows no family and no HTTP.
"""
