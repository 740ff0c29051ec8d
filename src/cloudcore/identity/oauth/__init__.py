"""OAuth 2.0: the sign-in page, authorization codes, tokens and their revocation.

- `authorize_routes`, `pages`: the sign-in page.
- `sign_in`, `attempts`: check the person who signs in.
- `sessions`: exchanges codes, and rotates refresh tokens.
- `routes`, `forms`, `grants`: the token endpoints.
"""
