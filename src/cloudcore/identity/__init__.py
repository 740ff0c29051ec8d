"""Identity: accounts, principals, credentials and rights; other families may use its ports.

`routes`, `services`, `rows` and `tables` implement the resources of ``/v1``: accounts,
organizations, people, service accounts, roles, policies, identity providers. `oauth` has the
sign-in page and token endpoints, `oidc` sign-in at an identity provider. `tokens` signs and
authenticates, `rights` decides what a principal may do, and `commands` is the command line.
`bootstrap` makes the first account, `recovery` helps an operator who lost access.
"""
