"""Call a registry: the sign-in, tokens, and requests to ``/v1``.

- `api`: the signed-in client; `transport` sends single requests.
- `credentials`, `sign_in`: tokens from the credentials file, or from an access key in the
  environment.
- `person_sign_in`, `loopback_redirect`: the sign-in of a person in a browser.
- `container_passwords`: passwords for container clients.
- `references`: parses names as people write them, and finds their paths on ``/v1``.
"""
