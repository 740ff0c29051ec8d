"""OpenID Connect: sign persons in at the identity provider of their organization.

`provider` calls it and keeps its keys, `flow` is the authorization code flow, `id_tokens` verifies
its tokens, and `sign_in` joins this to our own sign-in page.
"""
