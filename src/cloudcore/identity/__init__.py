"""Identity: accounts, principals, credentials and rights.

- `routes`, `services`, `rows`, `tables`: accounts, organizations, people, service accounts, roles,
  policies and identity providers under ``/v1``.
- `oauth`: the sign-in page and the token endpoints.
- `oidc`: sign-in at an identity provider.
- `tokens`: signs access tokens and authenticates requests.
- `rights`: decides what a principal may do.
- `commands`: the command line.
- `bootstrap`: creates the first account.
- `recovery`: helps an operator who lost access.
- `needs`: the dependencies of the routes, and the ports for other families.
"""
