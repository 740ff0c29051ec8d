"""Pieces: the sequences of bytes of which objects and the parts of uploads are made.

- `rows`: queries of pieces; condemn pieces whose object or upload was deleted
- `keys`: queries about the KMS keys that seal pieces
- `rewrapping`: move the pieces of a bucket to another KMS key
- `cleanup`: delete the bytes of condemned pieces
- `recounts`: compare the stored counts with the rows

The bytes themselves are behind the port `BucketBytes`.
"""
