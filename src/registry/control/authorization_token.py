"""``/v1/authorization-token``: a short-lived password for container clients."""

from __future__ import annotations

import base64

from litestar import post
from litestar.params import JSONBody

from cloudcore.web.answers import answer_of
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.wire import RFC3339, RequestBody, ResponseBody
from registry.services.access.logins import USERNAME, login_permission, mint_login, new_password


class GetAuthorizationToken(RequestBody):
    """A request without fields."""


class AuthorizationToken(ResponseBody):
    """A login for container clients; its password is shown in this answer only."""

    username: str
    password: str
    authorization_token: str
    """Base64 of ``username:password``, as in an ``auth`` entry of a client's configuration."""
    registry: str
    """The host to log in to."""
    proxy_endpoint: str
    """The URL of that host."""
    issued_at: RFC3339
    expires_at: RFC3339


@post("/v1/authorization-token", status_code=200, opt={"action": "registry:GetAuthorizationToken"})
async def get_authorization_token(
    ctx: Context,
    data: JSONBody[GetAuthorizationToken | None] = None,  # noqa: ARG001 - its fields are refused
) -> AuthorizationToken:
    """Mint a password that container clients log in with, for twelve hours at most.

    The password itself grants nothing: policies are read anew for each token, which lasts five
    minutes. An account has at most 10,000 open logins; revoked and expired ones do not count.
    """
    account_id = account_of(ctx)
    ctx.authorize(login_permission(ctx.settings.region, account_id).resource)
    assert ctx.caller is not None
    issued = await ctx.database.write(
        mint_login, ctx.caller, ctx.new_id(), new_password(), ctx.clock()
    )
    pair = f"{USERNAME}:{issued.password}".encode()
    host = ctx.settings.host
    return answer_of(
        AuthorizationToken,
        issued,
        username=USERNAME,
        authorization_token=base64.b64encode(pair).decode(),
        registry=host,
        proxy_endpoint=f"{ctx.settings.auth_url.partition('://')[0]}://{host}",
    )
