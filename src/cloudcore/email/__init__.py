"""Email: sending identities, messages and their delivery, suppressions, templates, dedicated IPs.

`resources` describes all kinds but dedicated IPs. The files of their names are their routes and
rules: `sending_identities`, `suppressions`, `templates`, `dedicated_ips`. `messages` accepts and
sends mail, `bounces` reads bounces and complaints. `needs` has the ports: the transport of mail, a
resolver, and the operator's terms.
"""
