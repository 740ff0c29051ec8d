"""Part of the composition root: the bytes of buckets, and the keys that buckets are bound to."""
