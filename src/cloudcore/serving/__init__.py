"""The HTTP server: HTTP/1.1 and TLS, dispatched to ASGI applications.

- `http`: the protocol of a connection.
- `bodies`: moves request and response bodies.
- `tls`: certificates, and the TLS transport.
- `processes`: binds sockets; starts, supervises and drains workers.

The modules here are shared: planes and dispatch, limits, request records, logs, counters and
metrics, `kept_answers` for repeated requests, `asgi` and `clients` for applications on any server.

Nothing here knows an application, and litestar is not imported.
"""
