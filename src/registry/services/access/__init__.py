"""Rights on the data plane: logins, bearer tokens, and decisions about repositories.

- `logins`, `container_passwords`: the credentials of container clients
- `tokens`: exchange credentials for bearer tokens
- `bearers`: sign and verify bearer tokens
- `decisions`: evaluate policies for a repository
"""
