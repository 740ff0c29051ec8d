"""One book for stored bytes, whoever they belong to.

The *tenants* store bytes in stores that are alike: buckets the pieces of their objects, and who
else brings a table and its description. Each has tables of its own, since what refers to the bytes
differs. What is done with the bytes is the same, and is written here, once, over the description
(docs/explanation/decisions/0007-one-book-for-stored-bytes.md):

- `book`: which rows have bytes, when these were verified, the marks of damaged ones, and what a
  backup knows of them
- `damage`: kinds of damage, and numbers on record that rows contradict
- `wraps`: data keys under KMS keys, opened, and wrapped under others
- `rewrapping`: the steps of a run that moves what is stored to another KMS key
"""
