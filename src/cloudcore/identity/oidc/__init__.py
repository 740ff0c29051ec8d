"""OpenID Connect: sign persons in at the identity provider of their organization.

`provider` calls the provider and caches its keys, `id_tokens` verifies its tokens, and `sign_in` is
the authorization code flow, joined to our own sign-in page.
"""
