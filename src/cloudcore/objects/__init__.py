"""Records of stored bytes, for all tenants.

The *tenants* store bytes in similar stores: buckets store the pieces of their objects, and other
tenants provide a table and its description. Each tenant has tables of its own, since different rows
refer to the bytes. The operations on the bytes are the same, and are written here once, on top of
the description (docs/explanation/decisions/0007-one-book-for-stored-bytes.md):

- `stored_rows`: which rows have bytes, when these were verified, which are damaged, and what a
  backup knows of them
- `damage`: kinds of damage, and stored counts that differ from a recount
- `wraps`: data keys under KMS keys, opened, and wrapped under others
- `rewrapping`: the steps of a run that moves stored bytes to another KMS key
"""
