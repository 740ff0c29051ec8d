"""TLS certificates: issued and renewed by an authority, or uploaded.

`certificate` describes one, `workflow` checks, issues, renews and revokes it, `chores` finds those
that are due. `issuer` is an authority: the install's own (`embedded`, which uses `authority`) or an
ACME server. `domains` has the operator's grants of domains, `zone_server` answers DNS challenges,
`checks` and `keys` read untrusted input.
"""
