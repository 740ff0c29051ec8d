"""Pieces: the sequences of bytes of which objects and the parts of uploads are made.

`rows` has their queries, and condemns those that nothing owns any more; `keys` the KMS keys that
seal them. `rewrapping` moves those of a bucket to another key, `cleanup` deletes the bytes of
condemned ones, `recounts` compares the stored counts with the rows. The bytes themselves are behind
the port `BucketBytes`.
"""
