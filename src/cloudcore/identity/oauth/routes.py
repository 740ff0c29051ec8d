"""Routes of tokens: token and revocation endpoints, key set, metadata, AssumeRole.

The token and revocation endpoints answer in the format of OAuth, even for errors raised by the
kernel (`ERROR_SHAPES`), and send ``Cache-Control: no-store``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import CacheControlHeader
from litestar.params import JSONBody

from cloudcore import errors
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.oauth import forms
from cloudcore.identity.oauth.forms import OAUTH_SHAPE, Form, OAuthClient
from cloudcore.identity.oauth.grants import IssuedToken, grant_token, revoke
from cloudcore.identity.oauth.pages import PATH as AUTHORIZE
from cloudcore.identity.rights import assume_role as roles
from cloudcore.identity.rights.assume_role import AssumedRole, AssumeRole
from cloudcore.serving.asgi import header_values
from cloudcore.web.app import Context, Needs
from cloudcore.web.envelope import ErrorShape

TOKEN: Final = "/v1/oauth/token"  # noqa: S105 - a path
REVOKE: Final = "/v1/oauth/revoke"
JWKS: Final = "/v1/jwks"
METADATA: Final = "/.well-known/oauth-authorization-server"

ERROR_SHAPES: Final[Mapping[str, ErrorShape]] = {TOKEN: OAUTH_SHAPE, REVOKE: OAUTH_SHAPE}
"""For `cloudcore.web.app.Routes`: paths whose errors from the kernel have the format of OAuth."""

_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
_NO_STORE: Final = {"Cache-Control": "no-store"}
_PUBLIC: Final = {"action": None, "public": True}

Grant = Callable[[Form, OAuthClient], Awaitable[object]]


class TokenForm(msgspec.Struct):
    """The parameters of the token endpoint; `grant_type` determines which of them apply."""

    grant_type: Literal["client_credentials", "authorization_code", "refresh_token"]
    client_id: str = ""
    client_secret: str = ""
    duration_seconds: int = 3600
    """For client_credentials: 900 to 43200; other values are raised or lowered to these limits."""
    code: str = ""
    code_verifier: str = ""
    redirect_uri: str = ""
    refresh_token: str = ""


class RevocationForm(msgspec.Struct):
    """The parameters of the revocation endpoint."""

    token: str = ""
    """The token to revoke; if empty, nothing is revoked."""
    token_type_hint: str = ""
    """Ignored."""
    client_id: str = ""
    client_secret: str = ""


class JsonWebKeySet(msgspec.Struct):
    """A set of public keys (RFC 7517)."""

    keys: list[dict[str, str]]


@post(
    TOKEN,
    opt={**_PUBLIC, "form": TokenForm, "statuses": (401,)},
    status_code=200,
    request_max_body_size=forms.MAX_FORM_BYTES,
)
async def create_token(
    request: Request[Any, Any, Any], ctx: Context, needs: Needs[IdentityNeeds]
) -> Response[IssuedToken]:
    """Exchange a key pair, a code or a refresh token for an access token (RFC 6749).

    `client_credentials` takes an access key by HTTP Basic or in the form. `invalid_client`: the
    key is wrong; replace it. `unauthorized_client`: the key is right, but its account or its
    service account is suspended; keep it.
    """
    return await _answer(request, partial(grant_token, ctx, needs.tokens, needs.uses))


@post(
    REVOKE,
    opt={**_PUBLIC, "form": RevocationForm, "statuses": (401,)},
    status_code=200,
    request_max_body_size=forms.MAX_FORM_BYTES,
)
async def revoke_token(
    request: Request[Any, Any, Any], ctx: Context, needs: Needs[IdentityNeeds]
) -> Response[None]:
    """Revoke a token, session or login credential; 200 even if there was none (RFC 7009)."""
    return await _answer(request, partial(revoke, ctx, needs.tokens))


@post(
    "/v1/assume-role",
    status_code=200,
    cache_control=CacheControlHeader(no_store=True),
    opt={"action": None, "statuses": (403, 404)},
)
async def assume_role(
    data: JSONBody[AssumeRole], ctx: Context, needs: Needs[IdentityNeeds]
) -> AssumedRole:
    """Assume a role: get an access token and a signature credential, which expire together.

    The caller needs `iam:AssumeRole` on the role (a person: an assignment of the role), and the
    role's trust policy must allow the caller.
    """
    return await roles.assume_role(ctx, needs.tokens, data)


@get(JWKS, opt=_PUBLIC, cache_control=CacheControlHeader(public=True, max_age=300))
async def get_key_set(needs: Needs[IdentityNeeds]) -> JsonWebKeySet:
    """Return the public keys that verify access tokens, including the next key."""
    return JsonWebKeySet(needs.keys.public_set())


@get(METADATA, opt=_PUBLIC)
async def get_authorization_server(needs: Needs[IdentityNeeds]) -> dict[str, Any]:
    """Return the authorization server metadata (RFC 8414)."""
    issuer = needs.auth_url
    return {
        "issuer": issuer,
        "authorization_endpoint": issuer + AUTHORIZE,
        "token_endpoint": issuer + TOKEN,
        "revocation_endpoint": issuer + REVOKE,
        "jwks_uri": issuer + JWKS,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "client_credentials", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": _METHODS,
        "revocation_endpoint_auth_methods_supported": _METHODS,
    }


async def _answer(request: Request[Any, Any, Any], grant: Grant) -> Response[Any]:
    """Parse the form and the client, return the answer of `grant`, or an error in OAuth's format.

    A request without a body counts as a form without parameters.
    """
    authorizations = header_values(request.scope, b"authorization")
    try:
        content_types = header_values(request.scope, b"content-type")
        body = await request.body()
        form = forms.parse_form(content_types, body) if body or content_types else {}
        content = await grant(form, forms.parse_client(authorizations, form))
    except (errors.InvalidInput, errors.Unauthenticated) as error:
        status, told = forms.render(error)
        headers = dict(_NO_STORE)
        if status == 401 and authorizations:
            headers["WWW-Authenticate"] = 'Basic realm="token"'
        return Response(told, status_code=status, headers=headers, media_type="application/json")
    shown = b"" if content is None else content
    return Response(shown, status_code=200, headers=_NO_STORE, media_type="application/json")
