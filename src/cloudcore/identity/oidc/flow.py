"""The authorization code flow at an identity provider (OpenID Connect Core 1.0 §3.1, RFC 7636).

The state of a pending sign-in is in one sealed cookie: the provider, `state`, `nonce`, the PKCE
verifier, and the sign-in form to continue with. So an answer is accepted only in the browser that
asked, and only at the address of the provider that was asked (RFC 9700 §4.4: an attacker's provider
must not get the code of another).
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from cloudcore.base64url import code_challenge
from cloudcore.clock import MICROSECONDS
from cloudcore.errors import AccessDenied
from cloudcore.identity.credentials import opened_text, sealed_text
from cloudcore.identity.oauth.forms import Form
from cloudcore.identity.oauth.sign_in import SignInForm
from cloudcore.identity.oidc import id_tokens
from cloudcore.identity.oidc.id_tokens import Profile
from cloudcore.identity.oidc.provider import Discovery, Metadata, ProviderClient, ProviderFailed
from cloudcore.identity.rows.identity_providers import IdentityProvider
from cloudcore.keyring import Keyring

PENDING_SECONDS: Final = 600
"""How long a person may take at the provider."""
_CONTEXT: Final = "sign-in at a provider"
_MAX_WORDS: Final = 300
_BEARER: Final = re.compile(r"[!-~]{1,65536}")


class PendingSignIn(msgspec.Struct, array_like=True, frozen=True):
    """A sign-in that has gone to a provider: the content of a cookie, sealed."""

    provider_id: str
    state: str
    nonce: str
    verifier: str
    expires_at: int
    form: SignInForm

    def seal(self, keyring: Keyring) -> str:
        """Return the value of the cookie."""
        return sealed_text(keyring, self, _CONTEXT)


def begin(provider: IdentityProvider, form: SignInForm, now: int) -> PendingSignIn:
    """Return a new sign-in at a provider."""
    return PendingSignIn(
        provider.id,
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(48),
        now + PENDING_SECONDS * MICROSECONDS,
        form,
    )


def resume(
    keyring: Keyring, cookie: str | None, provider_id: str, state: str, now: int
) -> PendingSignIn:
    """Return the sign-in that an answer with this `state` belongs to.

    `provider_id` is the provider to whose address the answer came.

    Raise `AccessDenied` if this browser did not begin the sign-in, began it at another provider, or
    took too long.
    """
    pending = opened_text(keyring, cookie, _CONTEXT, PendingSignIn)
    if pending is None or now >= pending.expires_at:
        raise _stale()
    if not hmac.compare_digest(pending.state.encode(), state.encode()):
        raise _stale()
    if pending.provider_id != provider_id:
        raise AccessDenied("another provider answered than the one that was asked; start again")
    return pending


def authorization_url(
    provider: IdentityProvider, metadata: Metadata, pending: PendingSignIn, redirect_uri: str
) -> str:
    """Return the URL of the provider for the browser."""
    query = urlencode(
        {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": provider.scopes,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": code_challenge(pending.verifier),
            "code_challenge_method": "S256",
        }
    )
    joint = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
    return f"{metadata.authorization_endpoint}{joint}{query}"


def check_answer(metadata: Metadata, answer: Form) -> str:
    """Return the code in a provider's answer.

    Raise `ProviderFailed` if it is an error, or the answer of another provider (RFC 9207).
    """
    issuer = answer.get("iss")
    is_named = issuer is not None or metadata.authorization_response_iss_parameter_supported
    if is_named and issuer != metadata.issuer:
        raise ProviderFailed("another provider answered than the one that was asked")
    if "error" in answer:
        raise ProviderFailed(f"it refused: {_words(answer)}")
    code = answer.get("code")
    if not code:
        raise ProviderFailed("its answer has no code")
    return code


async def fetch_profile(
    client: ProviderClient,
    discovery: Discovery,
    provider: IdentityProvider,
    secret: str | None,
    pending: PendingSignIn,
    code: str,
    redirect_uri: str,
    now: int,
) -> Profile:
    """Exchange a code for the person's profile.

    Raise `ProviderFailed` if the provider refuses the code, or its answer is not valid.
    """
    metadata = await discovery.metadata(provider.issuer, now)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": pending.verifier,
    }
    headers: dict[str, str] = {}
    if secret is None:
        form["client_id"] = provider.client_id
    elif "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
        headers["Authorization"] = _basic(provider.client_id, secret)
    else:
        form |= {"client_id": provider.client_id, "client_secret": secret}
    status, answer = await client.post(metadata.token_endpoint, form, headers)
    token = answer.get("id_token")
    if status != 200 or not isinstance(token, str):
        raise ProviderFailed(f"it refused its own code with status {status}: {_words(answer)}")
    verify = partial(
        id_tokens.verify_id_token,
        token,
        issuer=provider.issuer,
        client_id=provider.client_id,
        nonce=pending.nonce,
        now=now,
    )
    keys = await discovery.keys(provider.issuer, now, id_tokens.key_id_of(token))
    try:
        claims = verify(keys)
    except id_tokens.KeyMismatch:
        newer = await discovery.keys_after_mismatch(provider.issuer, now, keys)
        claims = verify(newer)
    access_token = answer.get("access_token")
    if (
        metadata.userinfo_endpoint
        and isinstance(access_token, str)
        and id_tokens.lacks_claims(provider, claims)
    ):
        if not _BEARER.fullmatch(access_token):  # an error about the header would show it
            raise ProviderFailed("its access token is none that a header can hold")
        told = await client.get(
            metadata.userinfo_endpoint, {"Authorization": f"Bearer {access_token}"}
        )
        if told.get("sub") != claims["sub"]:
            raise ProviderFailed("its userinfo endpoint told of another person")
        claims = {**told, **claims}
    return id_tokens.profile_of(provider, claims)


def _basic(client_id: str, secret: str) -> str:
    """Return the Basic credential of a client (RFC 6749 §2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _words(answer: Mapping[str, Any]) -> str:
    """Return the error in a provider's answer (RFC 6749 §4.1.2.1), as one short line."""
    parts = [answer.get("error"), answer.get("error_description")]
    told = ": ".join(part for part in parts if isinstance(part, str) and part)
    return " ".join(told.split())[:_MAX_WORDS] or "it gave no reason"


def _stale() -> AccessDenied:
    return AccessDenied(
        "this browser did not begin that sign-in, or began another since, or took more than "
        f"{PENDING_SECONDS // 60} minutes; start again"
    )
