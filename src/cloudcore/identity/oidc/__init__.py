"""OpenID Connect: sign persons in at the identity provider of their organization."""
