"""Sign a person in at an identity provider: redirect the browser there, and process its answer.

This is the authorization code flow (OpenID Connect Core 1.0 §3.1, RFC 7636). The state of a pending
sign-in is in one sealed cookie: the provider, `state`, `nonce`, the PKCE verifier, and the sign-in
form to continue with. So an answer is accepted only in the browser that began the sign-in, and only
at the redirect URI of the provider that was called (RFC 9700 §4.4: an attacker's provider must not
get a code of another provider).
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from cloudcore.base64url import code_challenge
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, TooManyAttempts
from cloudcore.identity.audit import record_provider_sign_in
from cloudcore.identity.credentials import hash_of, opened_text, sealed_text
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.oauth.forms import Form
from cloudcore.identity.oauth.pages import ProviderChoice, redirect_uri
from cloudcore.identity.oauth.sessions import new_code
from cloudcore.identity.oauth.sign_in import SignInForm
from cloudcore.identity.oidc import id_tokens
from cloudcore.identity.oidc.id_tokens import Profile
from cloudcore.identity.oidc.provider import Discovery, Metadata, ProviderClient, ProviderFailed
from cloudcore.identity.rows.identity_providers import (
    IdentityProvider,
    find_provider,
    list_active_providers,
)
from cloudcore.identity.rows.users import User
from cloudcore.identity.services import provider_sign_ins
from cloudcore.identity.services.identity_providers import open_client_secret
from cloudcore.keyring import Keyring, KeyringError
from cloudcore.serving.clients import rate_subject
from cloudcore.web.context import RequestContext
from cloudcore.web.rate_limits import Budget, count_request

PENDING_SECONDS: Final = 600
"""How many seconds a person may take at the provider."""
_CONTEXT: Final = "sign-in at a provider"
_MAX_WORDS: Final = 300
_BEARER: Final = re.compile(r"[!-~]{1,65536}")


class PendingSignIn(msgspec.Struct, array_like=True, frozen=True):
    """A sign-in that was begun at a provider: the content of the sealed cookie."""

    provider_id: str
    state: str
    nonce: str
    verifier: str
    expires_at: int
    form: SignInForm

    def seal(self, keyring: Keyring) -> str:
        """Return the value of the cookie."""
        return sealed_text(keyring, self, _CONTEXT)


def new_pending(provider: IdentityProvider, form: SignInForm, now: int) -> PendingSignIn:
    """Return a new sign-in at a provider."""
    return PendingSignIn(
        provider.id,
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(48),
        now + PENDING_SECONDS * MICROSECONDS,
        form,
    )


def _resume_pending(
    keyring: Keyring, cookie: str | None, provider_id: str, state: str, now: int
) -> PendingSignIn:
    """Return the pending sign-in in the cookie, to which an answer with this `state` must belong.

    `provider_id` is the provider in the URL that received the answer.

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
    """Return the URL of the provider to redirect the browser to."""
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

    Raise `ProviderFailed` if the answer is an error, or comes from another provider (RFC 9207).
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
    """Exchange a code for the person's profile; `secret` is the client's, None if it has none.

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
    """Return the HTTP Basic credential of a client (RFC 6749 §2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _words(answer: Mapping[str, Any]) -> str:
    """Return the error in a provider's answer (RFC 6749 §4.1.2.1) as one short line of text."""
    parts = [answer.get("error"), answer.get("error_description")]
    told = ": ".join(part for part in parts if isinstance(part, str) and part)
    return " ".join(told.split())[:_MAX_WORDS] or "it gave no reason"


def _stale() -> AccessDenied:
    return AccessDenied(
        "this browser did not begin that sign-in, or began another since, or took more than "
        f"{PENDING_SECONDS // 60} minutes; start again"
    )


BEGIN_BUDGET: Final = Budget(limit=30, window_seconds=300, is_extended=False)
"""Sign-ins at providers that a client address may begin; each may cause a call to a provider."""
MAX_CHOICES: Final = 20
"""Maximum number of providers on the sign-in page."""
_ENDPOINT: Final = "provider-sign-in"


async def list_choices(ctx: RequestContext) -> Sequence[ProviderChoice]:
    """Return the providers that the sign-in page offers.

    The page offers none if anyone may create an organization: a stranger could set up a provider
    under a name that people trust.
    """
    if ctx.settings.founders == "anyone":
        return ()
    providers = await ctx.database.read(list_active_providers, MAX_CHOICES)
    return [ProviderChoice(each.id, each.name, urlsplit(each.issuer).netloc) for each in providers]


async def begin(
    ctx: RequestContext, needs: IdentityNeeds, form: SignInForm, provider_id: str
) -> tuple[str, str]:
    """Begin a sign-in; return (the provider's URL for the browser, the cookie to set).

    Raise `TooManyAttempts` if `BEGIN_BUDGET` is exhausted, `AccessDenied` if there is no such
    provider, or it cannot be called.
    """
    source = f"address {rate_subject(ctx.source_ip)}"
    status = await ctx.database.write_relaxed(
        count_request, _ENDPOINT, source, BEGIN_BUDGET, ctx.clock()
    )
    if status.is_refused:
        raise TooManyAttempts("too many sign-ins", retry_after=status.reset)
    provider = await _active(ctx, provider_id)
    now = ctx.clock()
    pending = new_pending(provider, form, now)
    try:
        metadata = await needs.discovery.metadata(provider.issuer, now)
    except ProviderFailed as error:
        raise _failed(provider, error) from None
    back = redirect_uri(needs.auth_url, provider.id)
    to = authorization_url(provider, metadata, pending, back)
    return to, pending.seal(ctx.keyring)


async def finish(
    ctx: RequestContext, needs: IdentityNeeds, cookie: str | None, at: str, answer: Form
) -> tuple[SignInForm, User, str]:
    """Finish a sign-in; return (the form of the sign-in page, the person, a new code).

    `at` is the provider id in the URL that received the answer.

    Raise `AccessDenied` if the answer is not valid, or the person may not sign in.
    """
    now = ctx.clock()
    pending = _resume_pending(ctx.keyring, cookie, at, answer.get("state", ""), now)
    # First, so that an answer is used once even if a later step fails.
    await ctx.database.write(provider_sign_ins.use_state, hash_of(pending.state), now)
    provider = await _active(ctx, pending.provider_id)
    try:
        metadata = await needs.discovery.metadata(provider.issuer, now)
        profile = await fetch_profile(
            needs.provider_client,
            needs.discovery,
            provider,
            open_client_secret(ctx.keyring, provider),
            pending,
            check_answer(metadata, answer),
            redirect_uri(needs.auth_url, provider.id),
            now,
        )
    except (ProviderFailed, KeyringError) as error:
        raise _failed(provider, error) from None
    form, signed_in_at = pending.form, ctx.clock()
    code, row = new_code("", form.destination, form.code_challenge, signed_in_at)

    def sign_in(tx: Connection) -> User:
        of = ctx.keyring, provider.id, profile, ctx.new_id
        made = provider_sign_ins.sign_in(tx, *of, row, signed_in_at)
        record_provider_sign_in(ctx, tx, made)
        return made.user

    return form, await ctx.database.write(sign_in), code


async def _active(ctx: RequestContext, provider_id: str) -> IdentityProvider:
    found = await ctx.database.read(find_provider, provider_id)
    if found is None or found.status != "active":
        raise AccessDenied("there is no such identity provider; open the link again")
    return found


def _failed(provider: IdentityProvider, error: Exception) -> AccessDenied:
    # The message may contain text from the provider.
    words = "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(error)
    )
    return AccessDenied(f"signing in with {provider.name} failed: {words}")
