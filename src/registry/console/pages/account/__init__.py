"""Pages of an account: its settings, keys, event rules, audit log, usage, quotas and billing."""
