"""Pieces: the sequences of bytes of which objects and the parts of uploads are made.

`rows` has their queries, and condemns those without an owner; `keys` has queries about the KMS keys
that seal them. `rewrapping` moves the pieces of a bucket to another key, `cleanup` deletes the
bytes of condemned ones, `recounts` compares the stored counts with the rows. The bytes themselves
are behind the port `BucketBytes`.
"""
