"""Requests to hosts that users name: every address is checked, and only checked ones are called.

`destinations` checks, `host_lookup` and `dns_resolver` resolve, `http_client` speaks HTTP/1.1 over
`http_connection`; `mail_transfer` sends mail, for accounts and for the platform itself.
"""
