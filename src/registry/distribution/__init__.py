"""The data plane ``/v2``: OCI Distribution 1.1 as a raw ASGI application."""
