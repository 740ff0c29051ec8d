"""TLS certificates: issued and renewed by an authority, or uploaded.

- `certificate`: the record and the resource.
- `workflow`: checks, issues, renews and revokes certificates.
- `chores`: finds certificates that are due for renewal, or expire.
- `issuer`: the authorities: the install's own, or an ACME server.
- `embedded`, `authority`: the install's own authority.
- `domains`: the operator's grants of domains.
- `zone_server`: answers DNS challenges.
- `checks`, `keys`: read untrusted certificates, requests and keys.
"""
