"""The sign-in to the registry that a command calls, as the person or in the role they took."""

from __future__ import annotations

import argparse
import os

import msgspec

from cloudcore.command_line import TokenClaims
from registry.cli.api import ApiClient, ApiTokens
from registry.cli.credentials import Credential, changing, credentials_path, load
from registry.cli.environment_key import KeyTokens, find_key
from registry.cli.sign_in import SignIn, assume_role, choose_registry, transport_to
from registry.cli.token_claims import claims_of
from registry.cli.transport import base_url


class StoredSignIn:
    """The sign-in to the registry that the command line chooses: the stored one.

    An access key in the environment comes first, as everywhere.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._path = credentials_path(os.environ)
        named: str | None = options.registry
        self._key = find_key(os.environ, None if named is None else base_url(named))
        url = self._key.url if self._key else choose_registry(named, os.environ, self._path)
        self._transport = transport_to(url, self._path)
        if self._key is None:  # one that is stored may be of the environment's registry
            self._key = find_key(os.environ, self._transport.url)
        self._key_tokens = KeyTokens(self._transport, self._key) if self._key else None

    @property
    def url(self) -> str:
        """Return the registry's base URL."""
        return self._transport.url

    @property
    def credential(self) -> Credential | None:
        """Return the stored credential, or None."""
        return load(self._path).get(self.url)

    @property
    def is_program(self) -> bool:
        """Return True if a service account signed in, which gets no refresh token."""
        if self._key is not None:
            return True
        credential = self.credential
        return credential is not None and credential.refresh_token is None

    def tokens(self, *, in_role: bool) -> ApiTokens:
        """Return the tokens of the role, or of the person or program that signed in."""
        if self._key_tokens is not None:
            return self._key_tokens
        return SignIn(self._transport, self._path, in_role=in_role)

    def client(self, *, in_role: bool) -> ApiClient:
        """Return a client that acts in the role, or as the person or program that signed in."""
        return ApiClient(self._transport, self.tokens(in_role=in_role))

    @property
    def role(self) -> str | None:
        """Return the role that the person took, as it was written."""
        credential = None if self._key else self.credential
        return None if credential is None else credential.role

    def claims(self) -> TokenClaims:
        """Return what the token says by which commands act; renew it if necessary."""
        return claims_of(self.tokens(in_role=True).token())

    def assume(self, role: str | None) -> None:
        """Let commands act in a role from now on, or as the person."""
        source = self.tokens(in_role=False).token()  # raises if nobody is signed in
        token = None if role is None else assume_role(self._transport, source, role)
        with changing(self._path) as credentials:
            kept = credentials[self.url]
            credentials[self.url] = msgspec.structs.replace(kept, role=role, role_token=token)
