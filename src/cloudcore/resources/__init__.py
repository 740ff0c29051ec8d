"""Resources of accounts, each described once: what is derived from that, and what is not.

The reasons: docs/explanation/decisions/0004-a-resource-is-described-once.md.
"""
