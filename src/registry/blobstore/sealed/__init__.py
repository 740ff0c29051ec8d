"""Sealed objects: bytes encrypted frame by frame under a data key.

The format: ``docs/reference/sealed-format.md``.

`frame_format` has the header and the cipher, `frames` seals and opens single frames, `compression`
shrinks them first, `layout` computes their positions, `table` ends a packed object. `staged` seals
the bytes of an upload as they arrive; `objects` reads a whole object from any store, and
`shared_frames` lets its readers share decrypted frames. Nothing here depends on buckets, KMS keys
or the database.
"""
