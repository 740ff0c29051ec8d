"""The HTTP server: HTTP/1.1 and TLS, dispatched to ASGI applications.

`http` is the protocol of a connection, `bodies` moves request and response bodies, `tls` is
certificates and the transport of TLS, and `processes` binds, forks, supervises and drains. The
modules here are shared: planes and dispatch, limits, records, logs, counters and metrics,
`kept_answers` that can be sent again, `asgi` and `clients` for applications on any server.

Nothing here knows an application, and litestar is not imported.
"""
