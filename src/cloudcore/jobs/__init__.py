"""Background work: jobs and the schedule in tables, and the workers that run them."""
