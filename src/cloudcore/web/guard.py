"""Authenticate and authorize requests: answer 401 and 403 before anything reveals what exists.

The guard runs for every route, before the body is read. Access is denied by default: a route
without a spec is not served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from cloudcore.errors import InvalidInput, MethodNotAllowed, NotFound, RateLimited, Unauthenticated
from cloudcore.iam.decision import could_allow
from cloudcore.iam.principal import Principal
from cloudcore.iam.vocabulary import Vocabulary
from cloudcore.resource_names import parse_uuid
from cloudcore.serving.asgi import header_values
from cloudcore.serving.clients import rate_subject, source_address
from cloudcore.web.context import Origin, Platform, RequestContext, refusal
from cloudcore.web.path_tails import PLACEHOLDER
from cloudcore.web.rate_limits import count_request
from cloudcore.web.request_state import RequestState, request_state_of
from cloudcore.web.route_spec import RouteSpec

_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/-]{1,8192}=*) *", re.IGNORECASE)

Connection = ASGIConnection[Any, Any, Any, Any]


class Guard:
    """Checks every request, and creates its `RequestContext`."""

    def __init__(
        self,
        platform: Platform | None,
        specs: Mapping[BaseRouteHandler, RouteSpec],
        allow: Mapping[str, str],
        vocabulary: Vocabulary,
    ) -> None:
        """Check requests by each route's spec; `allow` maps path templates to ``Allow`` values."""
        self._platform = platform
        self._vocabulary = vocabulary
        self._specs = specs
        self._allow = allow

    async def admit(self, connection: Connection) -> None:
        """Check a request, and put its context into the scope.

        Raise `Unauthenticated`, `AccessDenied`, `RateLimited`, `NotFound` or `InvalidInput` if the
        request is refused.
        """
        spec = self._specs.get(connection.scope["route_handler"])
        if spec is None:  # the framework's own answer to OPTIONS
            allow = self._allow[connection.scope["path_template"]]
            raise MethodNotAllowed("the path does not take this method", allow=allow)
        state = request_state_of(connection.scope)
        state.spec = spec
        if spec.tail is not None:
            _show_tail(spec.tail, state.tail, connection.scope)
        _lower_ids(spec, connection.scope)
        if self._platform is not None:
            await self._admit(self._platform, state, connection, spec)
        if spec.tail is not None and state.tail is None:
            raise InvalidInput(
                f"{spec.tail} is percent-encoded UTF-8 without null characters",
                field=spec.tail,
                reason="malformed",
            )
        _check_ids(spec, connection.scope["path_params"])

    async def _admit(
        self, platform: Platform, state: RequestState, connection: Connection, spec: RouteSpec
    ) -> None:
        scope = connection.scope
        client = scope.get("client")
        platform.proxy_watch.note(
            client[0] if client else None, scope["headers"], platform.settings.trusted_proxies
        )
        context = state.context = RequestContext(
            platform,
            request_id=state.request_id,
            source_ip=source_address(
                client[0] if client else None,
                header_values(scope, b"x-forwarded-for"),
                platform.settings.trusted_proxies,
            ),
            action=spec.action,
            status=spec.status,
            path=scope["path"],
            query_string=scope["query_string"],
            vocabulary=self._vocabulary,
            user_agent=next(iter(header_values(scope, b"user-agent")), None),
            parameters=scope["path_params"],
            is_change=spec.method not in ("GET", "HEAD"),
        )
        credentials = header_values(scope, b"authorization")
        if not spec.public:
            context.authenticate = partial(_authenticate, platform, state, context, credentials)
            context.caller = await context.authenticate()
        elif spec.rate_limited and credentials:
            # Counted by principal; with an invalid credential, by address.
            with suppress(Unauthenticated):
                context.caller = await _authenticate(platform, state, context, credentials)
        if context.caller is not None:
            log = scope["state"]  # for the access log
            log["principal"], log["source"] = context.caller.crn, context.caller.source
        if spec.action is not None:
            await self._check_action(platform, state, context, spec.action)
        if spec.rate_limited:
            await _limit(state, context, spec)

    async def _check_action(
        self, platform: Platform, state: RequestState, context: RequestContext, action: str
    ) -> None:
        """Raise `AccessDenied` if no identity policy allows the action on any resource.

        If a resource's own policy may allow the action, leave the decision to the handler; in that
        case a 404 becomes a 403 for this caller.
        """
        assert context.caller is not None
        context.policies = await platform.authenticator.policies_of(context.caller)
        if not could_allow(context.policies, action, context.source_ip, context.clock()):
            if action not in self._vocabulary.shared_actions:
                raise refusal(action, caller=context.caller)
            state.hides_absence = True
            context.allowed_somewhere = False
        assert state.spec is not None
        if state.spec.change_check is not None:
            context.change_check = state.spec.change_check(context)


async def _authenticate(
    platform: Platform, state: RequestState, context: RequestContext, credentials: list[bytes]
) -> Principal:
    if len(credentials) != 1:
        raise Unauthenticated(
            "send one Authorization header" if credentials else "send Authorization: Bearer <token>"
        )
    bearer = _BEARER.fullmatch(credentials[0])
    state.bearer_came = credentials[0][:6].lower() == b"bearer"
    if bearer is None:
        raise Unauthenticated("only bearer tokens are accepted")
    origin = Origin(context.request_id, context.source_ip)
    return await platform.authenticator.authenticate(bearer[1].decode("ascii"), origin)


async def _limit(state: RequestState, context: RequestContext, spec: RouteSpec) -> None:
    """Count a request against the rate limit of its caller, or else of its address.

    Raise `RateLimited` if the limit is exceeded.
    """
    caller = context.caller
    whose = f"principal:{caller.id}" if caller else f"address:{rate_subject(context.source_ip)}"
    budget, now = context.settings.budget, context.clock()
    state.rate_limit = await context.database.write_relaxed(
        count_request, spec.operation, whose, budget, now
    )
    if state.rate_limit.is_refused:
        raise RateLimited("too many requests", retry_after=state.rate_limit.reset)


def _show_tail(name: str, tail: str | None, scope: Any) -> None:  # noqa: ANN401 - the framework's
    """Set the path parameter for the tail, for which the framework got a placeholder."""
    tail = PLACEHOLDER if tail is None else tail
    scope["path"] = scope["path"].removesuffix(PLACEHOLDER) + tail
    scope["path_params"] = {**scope["path_params"], name: tail}  # the framework caches the old dict


def _lower_ids(spec: RouteSpec, scope: Any) -> None:  # noqa: ANN401 - the framework's
    """Convert the ids in a path to lower case, as they are stored."""
    parameters = scope["path_params"]
    segments = scope["path"].split("/")
    for place, segment in enumerate(spec.path.split("/")):
        name = segment[1:-1]
        found = parse_uuid(parameters[name]) if name in spec.id_parameters else None
        if found is not None:
            parameters[name] = segments[place] = found
    scope["path"] = "/".join(segments)


def _check_ids(spec: RouteSpec, parameters: Mapping[str, Any]) -> None:
    for name in spec.id_parameters:
        if parse_uuid(parameters[name]) is not None:
            continue
        if spec.malformed_id == 400:
            raise InvalidInput(f"{name} is a UUID", field=name, reason="malformed")
        raise NotFound("there is no such thing")
