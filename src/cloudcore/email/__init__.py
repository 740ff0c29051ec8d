"""Email: sending identities, messages and their delivery, suppressions, templates, dedicated IPs.

`resources` describes all kinds of resources but dedicated IPs. `sending_identities`,
`suppressions`, `templates` and `dedicated_ips` have their routes and rules. `messages` accepts and
sends mail, `bounces` reads bounces and complaints. `needs` has the ports: the transport of mail, a
resolver, and the operator's terms.
"""
