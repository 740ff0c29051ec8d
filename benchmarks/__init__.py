"""Benchmarks: measure registries at ``/v2`` URLs, several of them side by side.

The client uses plain sockets and imports nothing of the registry, so that Entrepot and its peers
are measured by exactly the same client.
"""
