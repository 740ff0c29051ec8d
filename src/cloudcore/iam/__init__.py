"""Principals, policies and decisions: pure code without HTTP; only ports take a transaction.

`policy` parses documents, with `conditions`, `patterns` and `grammar`; `vocabulary` is the actions
and resources that they can name; `decision` decides. `audit`, `service_roles` and `principal` are
values and ports that families share. Rows of accounts, roles and policies are in `identity`.
"""
