"""Sealed objects: bytes encrypted frame by frame under a data key.

The format: ``docs/reference/sealed-format.md``.

- `frame_format`: the header and the cipher
- `frames`: seal and open single frames
- `compression`: compress the frames of an object before they are sealed
- `layout`: the positions of frames; `table`: the table at the end of a packed object
- `staged`: seal the bytes of an upload as they arrive
- `objects`: read a whole object from any store
- `shared_frames`: share decrypted frames among the readers of an object

Nothing here depends on buckets, KMS keys or the database.
"""
