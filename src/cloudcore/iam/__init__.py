"""Principals, policies and decisions: code without HTTP and SQL; only ports take a transaction.

- `policy`: parses policy documents, with `conditions`, `patterns` and `grammar`.
- `vocabulary`: the actions and resources that policies can name.
- `templates`: ready-made policies.
- `decision`: decides if policies allow an action.
- `passwords`: hashes and checks the passwords of persons.
- `principal`, `audit`, `service_roles`: values and ports that families share.

The rows of accounts, roles and policies are in `identity`.
"""
