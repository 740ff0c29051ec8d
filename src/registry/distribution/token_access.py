"""Bearer tokens at the door of the data plane: 401, 403 or in (B5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from cloudcore.clock import Clock
from cloudcore.errors import Unauthenticated
from cloudcore.serving.body import Scope
from cloudcore.serving.source_address import Address, Network, source_address
from registry.distribution.auth import PULL, PUSH, Grant, Listing, Need
from registry.distribution.challenge import Challenges
from registry.distribution.query import mount_source
from registry.errors import TokenDenied, TokenRequired
from registry.oci.reference import Name
from registry.services.access import CREATE, DESCRIBE, PERMISSIONS
from registry.services.tokens import (
    CATALOG,
    LISTING_STEPS,
    Bearer,
    BearerTokens,
    DecisionTurns,
    Entry,
)

_MAX_VERIFIED: Final = 4096
_MAX_REFUSALS: Final = 1024
_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/=-]{1,65536})", re.IGNORECASE)

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A dictionary of the newest entries only."""

    def __init__(self, size: int) -> None:
        self._entries: dict[K, V] = {}
        self._size = size
        self.get = self._entries.get

    def put(self, key: K, value: V) -> None:
        """Keep an entry, at the price of the oldest."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = value

    def take(self, key: K) -> V | None:
        """Remove and return an entry."""
        return self._entries.pop(key, None)


class TokenAccess:
    """Lets in who bears a token for it.

    A token that verified once is known by its exact spelling until it ends, so that a request
    costs one look-up in memory. Refusals are never kept; another spelling only costs a check.
    """

    def __init__(
        self,
        tokens: BearerTokens,
        challenges: Challenges,
        clock: Clock,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self.tokens = tokens
        self.challenges = challenges
        self._clock = clock
        self._trusted = trusted_proxies
        self._verified: Recent[bytes, Bearer] = Recent(_MAX_VERIFIED)
        # The Python oras client answers a 401 by the same request with the same token, and asks
        # for another token only upon 403. A connection is its client's address and port, and
        # stays with one worker; so the last refusal of each is kept here.
        self._refused: Recent[object, tuple[str, bytes, bytes, bytes]] = Recent(_MAX_REFUSALS)
        self._mounts: Recent[tuple[str, Name, Name], bool] = Recent(_MAX_REFUSALS)

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Return what the caller is granted, in the order of B5.

        Raises:
            TokenRequired, TokenDenied.

        """
        headers = scope["headers"]
        fields = dict(headers)
        credential = fields.get(b"authorization")
        if len(fields) < len(headers) and _is_repeated(headers, b"authorization"):
            message = "the token came more than once"
            raise self._refusal(scope, name, need, "invalid_token", credential or b"", message)
        bearer = self._verified.get(credential or b"")
        if bearer is None or self._clock() >= bearer.expires_at:
            bearer = self._verify(scope, name, need, credential)
        scope.setdefault("state", {})["principal"] = bearer.subject  # for the access log
        if need is None:
            return BearerGrant(self, scope, bearer)
        entry = bearer.access.get(name or CATALOG)
        if entry is not None and need.action in entry.granted:
            return BearerGrant(self, scope, bearer, counts_pulls=entry.counts_pulls)
        if entry is None or need.action not in entry.denied:
            message = "the token does not allow this"
            credential = credential or b""
            raise self._refusal(scope, name, need, "insufficient_scope", credential, message)
        challenge = self._challenge(scope, name, need, "insufficient_scope")
        if bearer.login_id is None:
            raise TokenRequired("sign in to do this", challenge)
        raise TokenDenied(_refusal_words(entry, name, need), challenge)

    def source_ip(self, scope: Scope) -> Address | None:
        """Return the address a request comes from."""
        client = scope.get("client")
        forwarded = [value for field, value in scope["headers"] if field == b"x-forwarded-for"]
        return source_address(client[0] if client else None, forwarded, self._trusted)

    def check_mount(self, scope: Scope, bearer: Bearer, target: Name, source: Name) -> None:
        """Ask once for a token that speaks of a mount's source too; never twice, or it loops.

        Raises:
            TokenRequired: it was not asked for before.

        """
        if self._mounts.take((bearer.token_id, target, source)):
            return
        self._mounts.put((bearer.token_id, target, source), value=True)
        asked = _scopes_of_mount(target, source)
        challenge = self.challenges.bearer(scope, asked, "insufficient_scope")
        raise TokenRequired("the token does not say whether you may pull from there", challenge)

    def _verify(
        self, scope: Scope, name: Name | None, need: Need | None, credential: bytes | None
    ) -> Bearer:
        if credential is None or not credential[:6].lower() == b"bearer":
            raise TokenRequired("send a bearer token", self._challenge(scope, name, need))
        token = _BEARER.fullmatch(credential)
        try:
            if token is None:
                raise Unauthenticated("the token is not valid")  # noqa: TRY301
            bearer = self.tokens.verify(token[1].decode())
        except Unauthenticated as error:
            refusal = self._refusal(scope, name, need, "invalid_token", credential, error.message)
            raise refusal from None
        self._verified.put(credential, bearer)
        return bearer

    def _refusal(
        self,
        scope: Scope,
        name: Name | None,
        need: Need | None,
        error: str,
        credential: bytes,
        message: str,
    ) -> TokenRequired | TokenDenied:
        """Return the 401 that asks for another token, or, of an identical repeat, the 403."""
        challenge = self._challenge(scope, name, need, error)
        connection = scope.get("client")
        request = (scope["method"], scope["raw_path"], scope["query_string"], credential)
        if connection is not None:
            if self._refused.take(connection) == request:
                return TokenDenied(f"{message}, and was refused a moment ago", challenge)
            self._refused.put(connection, request)
        return TokenRequired(f"{message}; ask for another", challenge)

    def _challenge(
        self, scope: Scope, name: Name | None, need: Need | None, error: str = ""
    ) -> str:
        asked = ""
        if need is not None:
            kind = "registry:catalog" if name is None else f"repository:{name}"
            asked = f"{kind}:{need.asked}"
            # A client that retries only once must get both repositories in the first challenge.
            source = mount_source(scope["query_string"]) if need.may_mount else None
            if name is not None and source is not None and source != name:
                asked = _scopes_of_mount(name, source)
        return self.challenges.bearer(scope, asked, error)


def _is_repeated(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bool:
    return [field for field, _ in headers].count(name) > 1


def _scopes_of_mount(target: Name, source: Name) -> str:
    """Return the scopes a mount needs, in the grammar of scopes."""
    return f"repository:{target}:{PUSH.asked} repository:{source}:{PULL.asked}"


def _refusal_words(entry: Entry, name: Name | None, need: Need) -> str:
    """Return what is missing; to a stranger only the rule, whether or not the repository exists."""
    if name is None:
        return f"none of your policies allows {DESCRIBE}"
    asked = f"{PERMISSIONS[need.action]} on {name}"
    reasons = dict(zip(entry.denied, entry.reasons, strict=False))
    match reasons.get(need.action):
        case "no_allow":
            return f"none of your policies allows {asked}"
        case "explicit_deny":
            return f"one of your policies denies {asked}"
        case "resource_deny":
            return f"the repository's own policy denies you {asked}"
        case _:
            return (
                f"{asked} takes an allow in one of your policies and, in a repository of another "
                "account, in the repository's own policy too"
            )


class BearerGrant:
    """What the bearer of one request was granted; beyond that, policies are asked as they are."""

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
        """Return the CRN of who bears the token; empty when nobody has signed in."""
        return self._bearer.subject

    async def may_create(self, name: Name) -> bool:
        """Say whether policies let the caller make this repository now."""
        return name in await self._allowed(CREATE, [name])

    async def sources(self, target: Name, source: Name | None) -> Callable[[Name], bool]:
        """Return which repositories the token and the policies of this moment let it mount from.

        Raises:
            TokenRequired: the token says nothing of `source`, and was not asked for more yet.

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

    async def listing(self) -> Listing:
        """Return the caller's account and what it may describe there now.

        Raises:
            TokenRequired: the login behind the token has ended.

        """
        tokens = self._access.tokens
        found = await tokens.find_subject(self._bearer, self._access.source_ip(self._scope))
        subject, login = found or (None, None)
        if subject is None or login is None:
            challenge = self._access.challenges.bearer(self._scope, error="invalid_token")
            raise TokenRequired("sign in again", challenge)
        turns = DecisionTurns(LISTING_STEPS)
        return Listing(login.handle, partial(tokens.may_describe, subject, login, turns))

    async def _allowed(self, action: str, names: Sequence[Name]) -> frozenset[Name]:
        source_ip = self._access.source_ip(self._scope)
        return await self._access.tokens.may(self._bearer, action, names, source_ip)
