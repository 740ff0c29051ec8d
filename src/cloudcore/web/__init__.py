"""The kernel of ``/v1``: what every operation of the control plane gets without its own code.

- `route_spec`: checks the declaration of each route.
- `path_tails`: separates last parameters that may contain slashes.
- `guard`: authenticates and authorizes.
- `app`, `request_state`: run the request.
- `context`: what handlers receive: caller, database, keyring.
- `strict_json`, `query`: parse input.
- `answers`, `bodies`, `pagination`, `envelope`, `streams`: shape output.
- `idempotency`, `rate_limits`, `revisions`, `audit`: rules of changes.
- `openapi`, `reference_pages`: describe the routes.

The package knows no family.
"""
