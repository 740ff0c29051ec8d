"""The kernel of ``/v1``: what every operation of the control plane gets without code of its own.

`route_spec` checks what a route declares, `path_tails` separates last parameters that may contain
slashes, `guard` authenticates and authorizes, `app` and `request_state` run the request, and
`context` is what handlers receive: caller, database, keyring. `strict_json` and `query` parse
input; `answers`, `bodies`, `pagination`, `envelope` and `streams` shape output; `idempotency`,
`rate_limits`, `revisions` and `audit` are rules of changes; `openapi` and `reference_pages`
describe the routes.

The package knows no family.
"""
