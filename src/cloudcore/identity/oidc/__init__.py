"""OpenID Connect: sign persons in at the identity provider of their organization.

- `provider`: calls a provider, and caches its metadata and keys.
- `id_tokens`: verifies a provider's tokens.
- `sign_in`: the authorization code flow, which begins and ends at the sign-in page of `oauth`.
"""
