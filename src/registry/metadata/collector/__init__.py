"""Queries of background work over all accounts: collection, fsck, scrub, sealing, shredding.

Requests use none but those of `collection` that undo or count. `audit` and `wrap_audit` are read by
fsck, `scrub` and `plain_objects` by the runs of these names; `erasure` erases data keys of deleted
KMS keys; `generations` identifies successive states of the database.
"""
