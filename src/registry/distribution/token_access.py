"""Authorize requests to the data plane by their bearer token."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from cloudcore.clock import Clock
from cloudcore.errors import Unauthenticated
from cloudcore.iam.audit import SIGN_IN, AuditClient, AuditEvent, Auditor, client_of
from cloudcore.iam.principal import SourceIdentity
from cloudcore.identity.tokens.jws import split_token
from cloudcore.serving.asgi import Scope, header_values
from cloudcore.serving.clients import Address, Network, source_address
from registry.distribution.auth import PULL, PUSH, Challenges, Grant, Need, VisibleCatalog
from registry.distribution.request import mount_source
from registry.errors import TokenDenied, TokenRequired
from registry.oci.reference import Name
from registry.services.access.decisions import CREATE, DESCRIBE, PERMISSIONS
from registry.services.access.logins import RefusedLogin
from registry.services.access.tokens import (
    CATALOG,
    LISTING_STEPS,
    Bearer,
    BearerTokens,
    DecisionBudget,
    NameRights,
)

_MAX_VERIFIED: Final = 4096
_MAX_REFUSALS: Final = 1024
_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/=-]{1,65536})", re.IGNORECASE)

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A dictionary of at most `size` entries; a new one replaces the oldest."""

    def __init__(self, size: int) -> None:
        self._entries: dict[K, V] = {}
        self._size = size
        self.get = self._entries.get

    def put(self, key: K, value: V) -> None:
        """Store an entry; evict the oldest above `size`."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = value

    def take(self, key: K) -> V | None:
        """Remove and return an entry, or return None."""
        return self._entries.pop(key, None)

    def forget_first(self, is_old: Callable[[V], bool]) -> None:
        """Remove the oldest entries, up to the first for which `is_old` returns False."""
        while self._entries:
            first = next(iter(self._entries))
            if not is_old(self._entries[first]):
                return
            del self._entries[first]


class TokenAccess:
    """Authorizes each request by its bearer token.

    A verified token is cached by its decoded signature until it expires, so that a request costs
    one look-up in memory, even if base64 spells the same token differently. Invalid tokens are not
    cached.
    """

    def __init__(
        self,
        tokens: BearerTokens,
        challenges: Challenges,
        clock: Clock,
        trusted_proxies: Sequence[Network] = (),
        auditor: Auditor | None = None,
    ) -> None:
        self._auditor = auditor
        self.tokens = tokens
        self.challenges = challenges
        self._clock = clock
        self._trusted = trusted_proxies
        self._verified: Recent[bytes, tuple[bytes, Bearer]] = Recent(_MAX_VERIFIED)
        """The signed text and the content of verified tokens, by signature."""
        # The Python oras client repeats a request with the same token after a 401, and asks for a
        # new token only after a 403. So the last refused request of each connection (the client's
        # address and port, always in the same worker) is stored here, and its repeat gets 403.
        self._refused: Recent[object, tuple[str, bytes, bytes, object]] = Recent(_MAX_REFUSALS)
        self._mounts: Recent[tuple[str, Name, Name], bool] = Recent(_MAX_REFUSALS)

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Return the rights of the request.

        Raise `TokenRequired` (401) if the token is missing or invalid, or was not requested for
        this action: the client shall request another. If policies denied the action when the token
        was issued, raise `TokenDenied` (403), or `TokenRequired` if the client has not signed in. A
        request that is repeated with the same token after a 401 also gets `TokenDenied`.
        """
        headers = scope["headers"]
        fields = dict(headers)
        credential: bytes = fields.get(b"authorization", b"")
        if len(fields) < len(headers) and len(header_values(scope, b"authorization")) > 1:
            message = "the request has more than one token"
            raise self._refusal(scope, name, need, "invalid_token", credential, message)
        bearer = self._find_verified(credential)
        if bearer is None or self._clock() >= bearer.expires_at:
            bearer = self._verify(scope, name, need, credential)
        state = scope.setdefault("state", {})
        state["principal"], state["source"] = bearer.subject, bearer.source  # for the access log
        if need is None:
            return BearerGrant(self, scope, bearer)
        entry = bearer.access.get(name or CATALOG)
        if entry is not None and need.action in entry.granted:
            return BearerGrant(self, scope, bearer, counts_pulls=entry.counts_pulls)
        if entry is None or need.action not in entry.denied:
            message = "the token does not allow this"
            raise self._refusal(scope, name, need, "insufficient_scope", credential, message)
        challenge = self._challenge(scope, name, need, "insufficient_scope")
        if not bearer.subject:
            raise TokenRequired("sign in to do this", challenge)
        if bearer.account_id is not None:
            refused = RefusedLogin(bearer.account_id, bearer.subject, bearer.source)
            details = {} if name is None else {"name": str(name)}
            self._note_refusal(scope, PERMISSIONS.get(need.action, DESCRIBE), refused, **details)
        raise TokenDenied(_refusal_words(entry, name, need), challenge)

    def note_refused_login(self, scope: Scope, refused: RefusedLogin) -> None:
        """Count a refused login, such as one with a wrong secret, for the account's audit log."""
        self._note_refusal(scope, SIGN_IN, refused)

    def _note_refusal(
        self, scope: Scope, action: str, refused: RefusedLogin, **details: object
    ) -> None:
        """Count a refusal for the audit log of the caller's account; a later flush writes it."""
        if self._auditor is None:
            return
        refusal = AuditEvent(
            id="",
            owner_id=refused.account_id,
            occurred_at=self._clock(),
            action=action,
            resources=refused.resources,
            principal=refused.principal,
            source=refused.source,
            client=self.client_of(scope),
            details=details,
            outcome="refused",
        )
        self._auditor.note_refusal(refusal)

    def source_ip(self, scope: Scope) -> Address | None:
        """Return the client's address behind trusted proxies; None if the peer has no IP."""
        client = scope.get("client")
        forwarded = header_values(scope, b"x-forwarded-for")
        return source_address(client[0] if client else None, forwarded, self._trusted)

    def client_of(self, scope: Scope) -> AuditClient:
        """Return the client data that the audit log records for a request."""
        agent = next(iter(header_values(scope, b"user-agent")), None)
        request_id = scope.get("state", {}).get("request_id", "")
        return client_of("data", self.source_ip(scope), agent, request_id)

    def check_mount(self, scope: Scope, bearer: Bearer, target: Name, source: Name) -> None:
        """Make the client request a token for the mount's source, but only once, to avoid a loop.

        Raise `TokenRequired` the first time this token, target and source occur, not the second.
        """
        if self._mounts.take((bearer.token_id, target, source)):
            return
        self._mounts.put((bearer.token_id, target, source), value=True)
        token_scope = _scopes_of_mount(target, source)
        challenge = self.challenges.bearer(scope, token_scope, "insufficient_scope")
        raise TokenRequired("the token does not say whether you may pull from there", challenge)

    def _verify(
        self, scope: Scope, name: Name | None, need: Need | None, credential: bytes
    ) -> Bearer:
        if credential[:6].lower() != b"bearer":
            raise TokenRequired("send a bearer token", self._challenge(scope, name, need))
        token = _BEARER.fullmatch(credential)
        try:
            if token is None:
                raise Unauthenticated("the token is not valid")  # noqa: TRY301
            bearer = self.tokens.verify(token[1].decode())
        except Unauthenticated as error:
            refusal = self._refusal(scope, name, need, "invalid_token", credential, error.message)
            raise refusal from None
        signed, signature = split_token(token[1])
        self._verified.put(signature, (signed, bearer))
        now = self._clock()
        self._verified.forget_first(lambda known: known[1].expires_at <= now)
        return bearer

    def _find_verified(self, credential: bytes) -> Bearer | None:
        """Return the content of a token if it was verified before, or None."""
        token = _split_bearer(credential)
        if token is None:
            return None
        signed, signature = token
        known = self._verified.get(signature)
        return known[1] if known is not None and known[0] == signed else None

    def _refusal(
        self,
        scope: Scope,
        name: Name | None,
        need: Need | None,
        error: str,
        credential: bytes,
        message: str,
    ) -> TokenRequired | TokenDenied:
        """Return a 401, so that the client gets another token; a 403 if it repeats the request.

        The request is repeated if it is the one last refused on this connection, token included.
        """
        challenge = self._challenge(scope, name, need, error)
        connection = scope.get("client")
        token = _split_bearer(credential) or credential
        request = (scope["method"], scope["raw_path"], scope["query_string"], token)
        if connection is not None:
            if self._refused.take(connection) == request:
                return TokenDenied(f"{message}, and was refused a moment ago", challenge)
            self._refused.put(connection, request)
        return TokenRequired(f"{message}; ask for another", challenge)

    def _challenge(
        self, scope: Scope, name: Name | None, need: Need | None, error: str = ""
    ) -> str:
        token_scope = ""
        if need is not None:
            kind = "registry:catalog" if name is None else f"repository:{name}"
            token_scope = f"{kind}:{need.scope_actions}"
            # Name both repositories in the first challenge, as some clients retry only once.
            source = mount_source(scope["query_string"]) if need.may_mount else None
            if name is not None and source is not None and source != name:
                token_scope = _scopes_of_mount(name, source)
        return self.challenges.bearer(scope, token_scope, error)


def _split_bearer(credential: bytes) -> tuple[bytes, bytes] | None:
    """Split a bearer token (`split_token`); return None if the credential is not one."""
    scheme, _, token = credential.partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    try:
        return split_token(token.lstrip(b" "))
    except Unauthenticated:
        return None


def _scopes_of_mount(target: Name, source: Name) -> str:
    """Return the scopes that a mount needs, as in a challenge."""
    return f"repository:{target}:{PUSH.scope_actions} repository:{source}:{PULL.scope_actions}"


def _refusal_words(entry: NameRights, name: Name | None, need: Need) -> str:
    """Return why the action is denied; for another account's repository, only the general rule."""
    if name is None:
        return f"none of your policies allows {DESCRIBE}"
    denied = f"{PERMISSIONS[need.action]} on {name}"
    reasons = dict(zip(entry.denied, entry.reasons, strict=False))
    match reasons.get(need.action):
        case "no_allow":
            return f"none of your policies allows {denied}"
        case "explicit_deny":
            return f"one of your policies denies {denied}"
        case "resource_deny":
            return f"the repository's own policy denies you {denied}"
        case _:
            return (
                f"{denied} takes an allow in one of your policies and, in a repository of another "
                "account, in the repository's own policy too"
            )


class BearerGrant:
    """The rights of one request: those in its bearer token; for others, current policies decide."""

    __slots__ = ("_access", "_bearer", "_scope", "counts_pulls")

    def __init__(
        self, access: TokenAccess, scope: Scope, bearer: Bearer, *, counts_pulls: bool = True
    ) -> None:
        self.counts_pulls = counts_pulls
        self._access = access
        self._scope = scope
        self._bearer = bearer

    @property
    def principal(self) -> str:
        """Return the CRN of the token's subject; empty for an unauthenticated client."""
        return self._bearer.subject

    @property
    def expires_at(self) -> int:
        """Return when the token expires, in microseconds since the epoch."""
        return self._bearer.expires_at

    @property
    def source(self) -> SourceIdentity | None:
        """Return the source identity behind the token's subject."""
        return self._bearer.source

    @property
    def client(self) -> AuditClient:
        """Return the client data that the audit log records for this request."""
        return self._access.client_of(self._scope)

    async def may_create(self, name: Name) -> bool:
        """Return True if current policies let the caller create this repository."""
        return name in await self._allowed(CREATE, [name])

    async def sources(self, target: Name, source: Name | None) -> Callable[[Name], bool]:
        """Return a predicate for the repositories from which blobs may be mounted.

        Both the token and current policies must allow the pull. `source` is the only repository to
        check; None for all in the token.

        Raise `TokenRequired` if the token has no scope for `source`; see `TokenAccess.check_mount`.
        """
        access = self._bearer.access
        if source is None:
            names = [name for name in access if name.handle == target.handle]
        else:
            names = [source] if source.handle == target.handle and source != target else []
            for name in names:
                entry = access.get(name)
                if entry is None or "pull" not in entry.granted + entry.denied:
                    self._access.check_mount(self._scope, self._bearer, target, name)
        pullable = [name for name in names if name in access and "pull" in access[name].granted]
        return (await self._allowed(PERMISSIONS["pull"], pullable)).__contains__

    async def listing(self) -> VisibleCatalog:
        """Return the caller's account, and a filter for what the caller may describe now.

        Raise `TokenRequired` if the login behind the token has ended.
        """
        tokens = self._access.tokens
        found = await tokens.find_subject(self._bearer, self._access.source_ip(self._scope))
        subject, login = found or (None, None)
        if subject is None or login is None:
            challenge = self._access.challenges.bearer(self._scope, error="invalid_token")
            raise TokenRequired("sign in again", challenge)
        budget = DecisionBudget(LISTING_STEPS)
        return VisibleCatalog(login.handle, partial(tokens.may_describe, subject, login, budget))

    async def _allowed(self, action: str, names: Sequence[Name]) -> frozenset[Name]:
        source_ip = self._access.source_ip(self._scope)
        return await self._access.tokens.may(self._bearer, action, names, source_ip)
