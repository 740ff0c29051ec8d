"""OCI values and their grammars: digests, names, manifests, media types. No I/O and no clock."""
