"""The data plane ``/v2``: OCI Distribution 1.1 as a raw ASGI application.

`app` matches the path (`routing`), checks it, authorizes (`auth`, `token_access`), and calls a
handler: `blobs`, `uploads`, `manifests`, `lists`, `token`. `kept_answers` decides which responses
the server may reuse. The package may import no SQL and no web framework.
"""
