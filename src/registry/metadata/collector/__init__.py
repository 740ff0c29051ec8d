"""Queries of background work over all accounts: collection, fsck, scrub, sealing, shredding.

Requests use only functions of `collection` that undo or count. `audit` and `wrap_audit` are for
fsck, `scrub` for the scrub, `plain_objects` for the sealing run; `erasure` erases data keys of
deleted KMS keys; `generations` identifies successive states of the database.
"""
