"""Records of stored bytes, for all tenants.

The *tenants* store bytes in stores that are alike: buckets the pieces of their objects, and others
that bring a table and its description. Each has tables of its own, since different rows refer to
the bytes. The operations on the bytes are the same, and are written here once, over the description
(docs/explanation/decisions/0007-one-book-for-stored-bytes.md):

- `stored_rows`: which rows have bytes, when these were verified, the marks of damaged ones, and
  what a backup knows of them
- `damage`: kinds of damage, and numbers on record that rows contradict
- `wraps`: data keys under KMS keys, opened, and wrapped under others
- `rewrapping`: the steps of a run that moves stored bytes to another KMS key
"""
