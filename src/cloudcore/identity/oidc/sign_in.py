"""Sign a person in at an identity provider: redirect the browser there, and take its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, TooManyAttempts
from cloudcore.identity.audit import record_provider_sign_in
from cloudcore.identity.credentials import hash_of
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.oauth.forms import Form
from cloudcore.identity.oauth.pages import ProviderChoice, redirect_uri
from cloudcore.identity.oauth.sessions import new_code
from cloudcore.identity.oauth.sign_in import SignInForm
from cloudcore.identity.oidc import flow
from cloudcore.identity.oidc.provider import ProviderFailed
from cloudcore.identity.rows.identity_providers import (
    IdentityProvider,
    find_provider,
    list_active_providers,
)
from cloudcore.identity.rows.users import User
from cloudcore.identity.services import provider_sign_ins
from cloudcore.identity.services.identity_providers import open_client_secret
from cloudcore.keyring import KeyringError
from cloudcore.serving.clients import rate_subject
from cloudcore.web.context import RequestContext
from cloudcore.web.rate_limits import Budget, count_request

BEGIN_BUDGET: Final = Budget(limit=30, window_seconds=300, is_extended=False)
"""Sign-ins that a client address may begin at providers; each may ask a provider."""
MAX_CHOICES: Final = 20
"""The most providers that the page shows."""
_ENDPOINT: Final = "provider-sign-in"


async def list_choices(ctx: RequestContext) -> Sequence[ProviderChoice]:
    """Return the providers that the sign-in page shows.

    Where anyone may found an organization there are none: a stranger could set a provider up under
    a name that people trust.
    """
    if ctx.settings.founders == "anyone":
        return ()
    providers = await ctx.database.read(list_active_providers, MAX_CHOICES)
    return [ProviderChoice(each.id, each.name, urlsplit(each.issuer).netloc) for each in providers]


async def begin(
    ctx: RequestContext, needs: IdentityNeeds, form: SignInForm, provider_id: str
) -> tuple[str, str]:
    """Return the provider's URL for the browser, and the cookie that the answer needs.

    Raise `TooManyAttempts` if `BEGIN_BUDGET` is exhausted, `AccessDenied` if there is no such
    provider, or it cannot be asked.
    """
    source = f"address {rate_subject(ctx.source_ip)}"
    status = await ctx.database.write_relaxed(
        count_request, _ENDPOINT, source, BEGIN_BUDGET, ctx.clock()
    )
    if status.is_refused:
        raise TooManyAttempts("too many sign-ins", retry_after=status.reset)
    provider = await _active(ctx, provider_id)
    now = ctx.clock()
    pending = flow.begin(provider, form, now)
    try:
        metadata = await needs.discovery.metadata(provider.issuer, now)
    except ProviderFailed as error:
        raise _failed(provider, error) from None
    back = redirect_uri(needs.auth_url, provider.id)
    to = flow.authorization_url(provider, metadata, pending, back)
    return to, pending.seal(ctx.keyring)


async def finish(
    ctx: RequestContext, needs: IdentityNeeds, cookie: str | None, at: str, answer: Form
) -> tuple[SignInForm, User, str]:
    """Return the sign-in form that an answer of a provider completes, the person and the code.

    `at` is the id of the provider in the address that the answer came to.

    Raise `AccessDenied` if the answer cannot be believed, or the person may not sign in.
    """
    now = ctx.clock()
    pending = flow.resume(ctx.keyring, cookie, at, answer.get("state", ""), now)
    # First, so that an answer is used once, also if what follows fails.
    await ctx.database.write(provider_sign_ins.use_state, hash_of(pending.state), now)
    provider = await _active(ctx, pending.provider_id)
    try:
        metadata = await needs.discovery.metadata(provider.issuer, now)
        profile = await flow.fetch_profile(
            needs.provider_client,
            needs.discovery,
            provider,
            open_client_secret(ctx.keyring, provider),
            pending,
            flow.check_answer(metadata, answer),
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
    # The words may be the provider's own.
    words = "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(error)
    )
    return AccessDenied(f"signing in with {provider.name} failed: {words}")
