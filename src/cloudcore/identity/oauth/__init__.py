"""OAuth 2.0: the sign-in page, authorization codes, tokens and their revocation.

`authorize_routes` and `pages` implement the page, `sign_in` and `attempts` check the person,
`sessions` exchanges codes and rotates refresh tokens; `routes`, `forms` and `grants` implement the
token endpoints.
"""
