"""Principals, policies and decisions: pure code without HTTP; only its ports take a transaction.

`policy` parses documents, using `conditions`, `patterns` and `grammar`; `vocabulary` has the
actions and resources that they can name; `decision` decides. `audit`, `service_roles` and
`principal` have values and ports that families share. Rows of accounts, roles and policies are in
`identity`.
"""
