"""Who has signed in to the console: all of it in one sealed cookie, nothing on the server.

The cookie holds the person's tokens and those of the role the person acts in. It is renewed when
they end, and is good for a working day at the most. Signing out ends the tokens, so a copy of the
cookie is worth nothing either.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from cloudcore.identity.oauth_forms import CONSOLE
from cloudcore.keyring import Keyring, KeyringError
from cloudcore.web import idempotency
from registry.console.control_plane import ControlPlaneClient, Refused

T = TypeVar("T")

COOKIE: Final = "entrepot_console"
LIFETIME: Final = 12 * 3600 * MICROSECONDS
_EARLY: Final = 60 * MICROSECONDS
"""A token this near its end might end on the way."""
_OPERATION: Final = "console refresh"
_TURNS: Final = 13
"""How often tokens can have been renewed in a cookie's life, and once more."""
_WAITS: Final = 100


class SignedOut(Exception):
    """There is no sign-in, or it is over."""


class NoRole(Exception):
    """The person acts in no role, and must choose one."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """An access token, and when it ends."""

    value: str
    ends_at: int


class Acting(msgspec.Struct, frozen=True, array_like=True):
    """The role a person acts in, and the account it is of."""

    role_id: str
    role: str
    account_id: str
    account: str
    """The handle."""
    token: Token


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What the cookie holds."""

    user_id: str
    email: str
    csrf: str
    """What every form of this session must bring along."""
    ends_at: int
    person: Token
    refresh_token: str
    acting: Acting | None = None


class _Renewed(msgspec.Struct, frozen=True, array_like=True):
    """What a refresh token was changed for."""

    person: Token
    refresh_token: str


class CookieJar:
    """Seals what cookies hold, and says what browsers may do with them."""

    def __init__(self, keyring: Keyring, auth_url: str) -> None:
        self._keyring = keyring
        self._flags = "; Path=/console; HttpOnly; SameSite=Lax"
        if auth_url.startswith("https:"):
            self._flags += "; Secure"

    def seal(self, name: str, value: msgspec.Struct) -> str:
        """Return a ``Set-Cookie`` of this value, for as long as the browser runs."""
        sealed = self._keyring.seal(msgspec.msgpack.encode(value), _context(name))
        return f"{name}={urlsafe_b64encode(sealed).decode()}{self._flags}"

    def drop(self, name: str) -> str:
        """Return a ``Set-Cookie`` that takes a cookie away."""
        return f"{name}={self._flags}; Max-Age=0"

    def open(self, name: str, cookie: str | None, shape: type[T]) -> T | None:
        """Return what a cookie holds; None when it is not ours."""
        try:
            opened = self._keyring.open(urlsafe_b64decode(cookie or ""), _context(name))
            return msgspec.msgpack.decode(opened, type=shape)
        except (ValueError, KeyringError):
            return None


def _context(name: str) -> str:
    return f"cookie:{name}"


class Sessions:
    """Keeps sessions alive."""

    def __init__(
        self, database: Database, keyring: Keyring, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._new_id = new_id

    def now(self) -> int:
        """Return the present moment."""
        return self._clock()

    def token(self, answer: dict[str, object]) -> Token:
        """Return the access token of an answer of ``/v1``."""
        seconds = msgspec.convert(answer["expires_in"], int)
        return Token(str(answer["access_token"]), self._clock() + seconds * MICROSECONDS)

    async def live(self, client: ControlPlaneClient, session: Session | None) -> Session:
        """Return a session whose role token is good for a while.

        Raises:
            SignedOut: it is over.
            NoRole: it has no role, or has lost it.

        """
        session = self._begun(session)
        acting = session.acting
        if acting is not None and self._is_live(acting.token):
            return session
        session = await self.live_person(client, session)
        if acting is None:
            raise NoRole
        return await self.act(client, session, acting.role_id)

    async def live_person(self, client: ControlPlaneClient, session: Session | None) -> Session:
        """Return a session whose person's token is good for a while.

        Raises:
            SignedOut: it is over.

        """
        session = self._begun(session)
        for _ in range(_TURNS):
            if self._is_live(session.person):
                return session
            try:
                renewed = await self._refreshed(client, session)
            except Refused as error:
                if error.status >= 500:
                    raise
                raise SignedOut from None
            session = msgspec.structs.replace(
                session, person=renewed.person, refresh_token=renewed.refresh_token
            )
        raise SignedOut

    async def act(self, client: ControlPlaneClient, session: Session, role_id: str) -> Session:
        """Return a session that acts in a role.

        Raises:
            NoRole: the person may not.

        """
        person = client.signed(session.person.value)
        role = await find_role(person, role_id)
        if role is None:
            raise NoRole
        try:
            answer = await person.post("/v1/assume-role", {"role": role_id})
        except Refused as error:
            if error.status in (403, 404):
                raise NoRole from None
            raise
        acting = Acting(
            role_id,
            role["name"],
            answer["account_id"],
            answer["account_handle"],
            self.token(answer),
        )
        return msgspec.structs.replace(session, acting=acting)

    def _begun(self, session: Session | None) -> Session:
        if session is None or self._clock() >= session.ends_at:
            raise SignedOut
        return session

    def _is_live(self, token: Token) -> bool:
        return self._clock() < token.ends_at - _EARLY

    async def _refreshed(self, client: ControlPlaneClient, session: Session) -> _Renewed:
        """Return what a refresh token is changed for, once, whoever else brings the same cookie.

        A browser sends its requests at once, to any worker, and a refresh token's second use
        would end the session. So the first use is recorded, sealed, for the others.
        """
        used = sha256(session.refresh_token.encode()).hexdigest()
        scope = idempotency.Scope(session.user_id, _OPERATION, used)
        claim = idempotency.Claim(scope, used, self._new_id())
        sealed = await self._begin(claim)
        if sealed is not None:
            outcome = idempotency.Outcome.open(sealed, self._keyring, scope)
            return msgspec.msgpack.decode(outcome.body, type=_Renewed)
        try:
            answer = await client.post_form(
                "/v1/oauth/token",
                {
                    "grant_type": "refresh_token",
                    "refresh_token": session.refresh_token,
                    "client_id": CONSOLE,
                },
            )
        except Refused:
            await self._database.write_relaxed(idempotency.release, claim)
            raise
        renewed = _Renewed(self.token(answer), answer["refresh_token"])
        outcome = idempotency.Outcome(200, "", None, msgspec.msgpack.encode(renewed), ())
        sealed = outcome.seal(self._keyring, scope)
        await self._database.write(idempotency.complete, claim, 200, sealed)
        return renewed

    async def _begin(self, claim: idempotency.Claim) -> bytes | None:
        """Claim a refresh, or return its sealed outcome when another has it.

        Raises:
            SignedOut: the other does not come to an end.

        """
        for _ in range(_WAITS):
            try:
                return await self._database.write_relaxed(idempotency.begin, claim, self._clock())
            except idempotency.InProgress:
                await asyncio.sleep(0.05)
        raise SignedOut


async def list_roles(client: ControlPlaneClient) -> list[dict[str, object]]:
    """Return the roles that the person of a token can act in."""
    found: list[dict[str, object]] = []
    marker = None
    while True:
        page = await client.get("/v1/users/me/roles", limit=200, marker=marker)
        found += page["roles"]
        marker = page["meta"].get("marker")
        if marker is None:
            return found


async def find_role(client: ControlPlaneClient, role_id: str) -> dict[str, str] | None:
    """Return one of them."""
    for role in await list_roles(client):
        if role["id"] == role_id:
            return msgspec.convert({"id": role["id"], "name": role["name"]}, dict[str, str])
    return None
