"""Call a registry: the sign-in, tokens, and requests to ``/v1``.

`api` is the signed-in client, `transport` sends a request. A token comes from the credentials file
or an access key in the environment (`credentials`, `sign_in`), or from a person in a browser
(`person_sign_in`, `loopback_redirect`). `container_passwords` are for container clients.
`references` parses names as people write them, and finds their paths on ``/v1``.
"""
