"""Load tool for registries: measures any ``/v2`` base URL, and several side by side.

It talks HTTP over plain sockets and imports nothing of the registry, so that a peer and our own
server meet exactly the same client.
"""
