"""Resources of accounts, each described once: see docs/adr for what is derived and what is not."""
