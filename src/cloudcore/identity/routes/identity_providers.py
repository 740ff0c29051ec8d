"""``/v1/organizations/{id}/identity-providers``: OpenID Connect, for owners."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import InvalidInput, invalid_field
from cloudcore.identity.names import iam_crn
from cloudcore.identity.oauth.pages import redirect_uri
from cloudcore.identity.routes.common import Answers, Title
from cloudcore.identity.routes.organizations import authorized, membership_policy
from cloudcore.identity.rows.identity_providers import (
    DEFAULT_SESSION_HOURS,
    IDENTITY_PROVIDERS,
    IdentityProvider,
)
from cloudcore.identity.services import identity_providers
from cloudcore.identity.services.identity_providers import check_issuer, seal_client_secret
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of

_PATH: Final = "/v1/organizations/{organization_id:str}/identity-providers"
_DOMAIN: Final = re.compile(r"(?=.{3,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")  # RFC 6749 §3.3

Url = Annotated[str, Meta(min_length=8, max_length=1000)]
ClientId = Annotated[str, Meta(min_length=1, max_length=500)]
ClientSecret = Annotated[str, Meta(min_length=1, max_length=1000)]
Claim = Annotated[str, Meta(min_length=1, max_length=200)]
Scopes = Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=20)]
Domains = Annotated[list[Annotated[str, Meta(min_length=3, max_length=253)]], Meta(max_length=50)]
SessionHours = Annotated[int, Meta(ge=1, le=720)]
ProviderStatus = Literal["active", "inactive"]


class CreateProvider(RequestBody):
    """A new identity provider."""

    name: Title
    """The name on the sign-in page."""
    issuer: Url
    """The provider's issuer identifier, such as ``https://login.example.com``."""
    client_id: ClientId
    client_secret: ClientSecret | None = None
    """Null for a client without a secret."""
    scopes: Scopes = msgspec.field(default_factory=lambda: ["openid", "email", "profile"])
    """The scopes to request; by default ``openid email profile``. Many providers return groups only
    for the scope ``groups``."""
    groups_claim: Claim = "groups"
    """The claim that lists the groups of a person."""
    email_verified_claim: Claim = "email_verified"
    """The claim that tells if the provider has verified the e-mail address."""
    email_domains: Domains = msgspec.field(default_factory=list)
    """Domains of e-mail addresses for which the provider is the authority. Persons are found and
    created only by addresses in these domains."""
    creates_people: bool = False
    """True to create persons with addresses in these domains at their first sign-in, as members."""
    session_hours: SessionHours = DEFAULT_SESSION_HOURS
    """After these hours a person must sign in again, so that the groups are read again."""


class UpdateProvider(RequestBody):
    """Changes of an identity provider; its issuer, client and groups claim cannot change."""

    name: Title | UnsetType = UNSET
    client_secret: ClientSecret | UnsetType | None = UNSET
    scopes: Scopes | UnsetType | None = UNSET
    email_verified_claim: Claim | UnsetType | None = UNSET
    email_domains: Domains | UnsetType | None = UNSET
    creates_people: bool | UnsetType | None = UNSET
    session_hours: SessionHours | UnsetType | None = UNSET
    """Applies to sign-ins from now on."""
    status: ProviderStatus | UnsetType = UNSET
    """``inactive``: nobody can sign in with the provider, and trust policies admit nobody by naming
    it. Sign-ins at the provider end, and so do the roles that its persons have assumed. Links and
    assignments stay."""


class ProviderRecord(ResponseBody):
    """An identity provider; the client secret is never shown."""

    id: Uuid
    crn: str
    name: str
    issuer: str
    client_id: str
    has_client_secret: bool
    scopes: Sequence[str]
    groups_claim: str
    email_verified_claim: str
    email_domains: Sequence[str]
    creates_people: bool
    session_hours: int
    status: ProviderStatus
    redirect_uri: str
    """The redirect URI to register for the client at the provider; each provider has its own."""
    created_at: RFC3339
    updated_at: RFC3339


def _record(ctx: RequestContext, provider: IdentityProvider) -> ProviderRecord:
    return answer_of(
        ProviderRecord,
        provider,
        crn=iam_crn(provider.organization_id, "identity-provider", provider.id),
        has_client_secret=provider.client_secret_sealed is not None,
        scopes=provider.scopes.split(),
        email_domains=provider.domains,
        redirect_uri=redirect_uri(ctx.settings.auth_url, provider.id),
    )


_PROVIDER: Final = Answers(ProviderRecord, "identity_provider", _record)


def _joined(field: str, values: Sequence[str], form: re.Pattern[str], words: str) -> str:
    """Join distinct values as a column stores them; raise `InvalidInput` if one is malformed."""
    for index, value in enumerate(values):
        if not form.fullmatch(value):
            raise invalid_field(f"{field}[{index}]", words)
    return " ".join(dict.fromkeys(values))


def _columns(ctx: RequestContext, provider_id: str, given: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a request to columns; raise `InvalidInput` if one is invalid."""
    for name, text in given.items():
        if isinstance(text, str) and not text.isprintable():
            raise InvalidInput(f"{name} has control characters", field=name, reason="malformed")
    if "issuer" in given:
        given["issuer"] = check_issuer(given["issuer"], ctx.settings.oidc_internal_origins)
    if "scopes" in given:
        words = "a scope is printable ASCII without space, quote or backslash"
        scopes = _joined("scopes", given["scopes"], _SCOPE, words)
        given["scopes"] = " ".join(dict.fromkeys(("openid", *scopes.split())))
    if "email_domains" in given:
        domains = [each.lower() for each in given["email_domains"]]
        words = "this is no domain such as example.com"
        given["email_domains"] = _joined("email_domains", domains, _DOMAIN, words)
    if "client_secret" in given:
        secret = given.pop("client_secret")
        given["client_secret_sealed"] = seal_client_secret(ctx.keyring, provider_id, secret)
    return given


@_PROVIDER.creates(
    _PATH, "iam:CreateIdentityProvider", resource_policy=membership_policy, statuses=(404, 409)
)
async def create_identity_provider(
    organization_id: FromPath[str], data: JSONBody[CreateProvider], ctx: Context
) -> Reply[ResponseBody]:
    """Let the organization's people sign in at an OpenID Connect provider.

    The provider is called at the first sign-in, not now.
    """
    joined = await authorized(ctx, organization_id)
    now, provider_id = ctx.clock(), ctx.new_id()
    provider = IdentityProvider(
        id=provider_id,
        organization_id=joined.id,
        status="active",
        created_at=now,
        updated_at=now,
        **_columns(ctx, provider_id, msgspec.structs.asdict(data)),
    )
    return await ctx.commit(
        identity_providers.create_provider,
        provider,
        joined.user_id,
        wrap=partial(_PROVIDER.one, ctx),
        location=lambda made: (
            f"/v1/organizations/{made.organization_id}/identity-providers/{made.id}"
        ),
    )


@_PROVIDER.lists(_PATH, "iam:ListIdentityProviders", NamedPageQuery)
async def list_identity_providers(organization_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the organization's identity providers, by name; for owners."""
    await authorized(ctx, organization_id)
    rows, owner = IDENTITY_PROVIDERS, organization_id
    return await _PROVIDER.page(ctx, rows, owner, ctx, query=NamedPageQuery)


@_PROVIDER.gets(_PATH + "/{provider_id:str}", "iam:GetIdentityProvider")
async def get_identity_provider(
    organization_id: FromPath[str], provider_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return an identity provider."""
    await authorized(ctx, organization_id)
    found = await ctx.database.read(IDENTITY_PROVIDERS.get, organization_id, provider_id)
    return _PROVIDER.one(ctx, found)


@_PROVIDER.updates(_PATH + "/{provider_id:str}", "iam:UpdateIdentityProvider", statuses=(409,))
async def update_identity_provider(
    organization_id: FromPath[str],
    provider_id: FromPath[str],
    data: JSONBody[UpdateProvider],
    ctx: Context,
) -> Reply[ResponseBody]:
    """Change an identity provider."""
    await authorized(ctx, organization_id)
    changes = _columns(ctx, provider_id, changes_of(data, CreateProvider))
    return await ctx.commit(
        identity_providers.update_provider,
        organization_id,
        provider_id,
        changes,
        ctx.clock(),
        wrap=partial(_PROVIDER.one, ctx),
    )


@deletes(_PATH + "/{provider_id:str}", "iam:DeleteIdentityProvider")
async def delete_identity_provider(
    organization_id: FromPath[str], provider_id: FromPath[str], ctx: Context
) -> None:
    """Delete an identity provider.

    The persons stay, but lose the roles that the provider's groups gave them. The operator can give
    a person without a password one with ``entrepot reset-password`` on the host.
    """
    await authorized(ctx, organization_id)
    await ctx.database.write(
        identity_providers.delete_provider, organization_id, provider_id, ctx.clock()
    )
