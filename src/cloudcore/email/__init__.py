"""Email: sending identities, messages and their delivery, suppressions, templates, dedicated IPs.

`resources`: describes all kinds of resources but dedicated IPs, which `dedicated_ip` describes.
`sending_identities`, `suppressions`, `templates`, `dedicated_ips`: their rules and routes.
`messages`: accepts and sends mail.
`bounces`: reads bounces and complaints.
`needs`: the ports: the transport of mail, a resolver, and the operator's terms.
"""
