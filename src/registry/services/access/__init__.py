"""Rights on the data plane: logins, bearer tokens, and decisions about repositories.

`logins` and `container_passwords` are the credentials of container clients; `tokens` exchanges them
for bearer tokens, which `bearers` signs and verifies; `decisions` evaluates policies for a
repository.
"""
