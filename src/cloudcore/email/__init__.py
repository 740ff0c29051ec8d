"""Email: from where an account sends mail, to whom never again, and what became of each message.

`resources` describes all kinds but dedicated IPs. The files of their names are their routes and
rules: `sending_identities`, `suppressions`, `templates`, `dedicated_ips`. `messages` accepts and
sends mail, `bounces` reads what comes back. `needs` has the ports: the transport of mail, a
resolver, and the operator's terms.
"""
