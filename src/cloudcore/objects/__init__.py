"""Records of stored bytes, for all tenants.

The *tenants* are the families that store bytes: buckets store the pieces of their objects, and each
other tenant provides its own table and a description of it. Tenants have separate tables, since
different rows refer to their bytes. The operations on the bytes are the same for all, and are
written here once (docs/explanation/decisions/0007-one-book-for-stored-bytes.md):

- `stored_rows`: which rows have bytes, when these were verified, which are damaged, and which a
  backup must copy
- `damage`: kinds of damage, and stored counts that differ from a recount
- `wraps`: open data keys that are wrapped under KMS keys, and wrap them under other KMS keys
- `rewrapping`: the steps of a run that moves stored bytes to another KMS key
"""
