"""Keys of accounts: ``/v1/keys``, and the port through which families wrap data keys under them.

- `key`: the record and the resource.
- `services`, `rules`: changes of keys, and the rules for keys.
- `providers`: wrap the material of keys.
- `vault`: the port for other families, which encrypts under a key without revealing it.
"""
