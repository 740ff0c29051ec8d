"""Queries of background work over all accounts; requests use only a few of those in `collection`.

- `collection`: delete unreferenced content
- `audit`, `wrap_audit`: fsck
- `scrub`: the scrub
- `plain_objects`: the run that seals plain objects
- `erasure`: erase data keys of deleted KMS keys
- `generations`: identify successive states of the database
"""
