"""Sessions of the console, each in a sealed cookie; nothing is stored on the server.

The cookie holds the tokens of the person and of the assumed role. Tokens are renewed when they
expire, for 12 hours at most. Signing out revokes the tokens of all copies.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.identity.oauth.forms import CONSOLE
from cloudcore.keyring import Keyring, KeyringError
from registry.console.control_plane import ControlPlaneClient, Refused

T = TypeVar("T")


class CookieJar:
    """Seals and opens cookies for the path ``/console``."""

    def __init__(self, keyring: Keyring, url: str) -> None:
        self._keyring = keyring
        self._flags = "; Path=/console; HttpOnly; SameSite=Lax"
        if url.startswith("https:"):
            self._flags += "; Secure"

    def seal(self, name: str, value: msgspec.Struct, seconds: int = 0) -> str:
        """Return the ``Set-Cookie`` value of a cookie that lasts `seconds`; 0: a session cookie."""
        sealed = self._keyring.seal(msgspec.msgpack.encode(value), _context(name))
        age = f"; Max-Age={seconds}" if seconds else ""
        return f"{name}={urlsafe_b64encode(sealed).decode()}{self._flags}{age}"

    def drop(self, name: str) -> str:
        """Return the ``Set-Cookie`` value that deletes a cookie."""
        return f"{name}={self._flags}; Max-Age=0"

    def open(self, name: str, cookie: str | None, shape: type[T]) -> T | None:
        """Return the value of a cookie, or None if `seal` did not make the cookie for this name."""
        try:
            opened = self._keyring.open(urlsafe_b64decode(cookie or ""), _context(name))
            return msgspec.msgpack.decode(opened, type=shape)
        except (ValueError, KeyringError):
            return None


def _context(name: str) -> str:
    return f"cookie:{name}"


COOKIE: Final = "entrepot_console"
LIFETIME: Final = 12 * 3600 * MICROSECONDS
_EARLY: Final = 60 * MICROSECONDS
"""A token that expires sooner is renewed before it is used."""
_OPERATION: Final = "console refresh"
_MAX_RENEWALS: Final = 13
"""One more than the renewals of a person's token that fit the lifetime of a cookie."""


class SignedOut(Exception):
    """Raised when the browser has no session, or its session has ended."""


class NoRole(Exception):
    """The session has no role; the person must choose one."""


class RoleRefused(Exception):
    """A role is assigned to the person, but its trust policy does not admit them."""

    def __init__(self, role: str, account: str, person: str, error: Refused) -> None:
        super().__init__(error.message)
        self.role = role
        self.account = account
        """The account's handle."""
        self.person = person
        """The CRN by which a trust policy names the person."""
        self.error = error


class Once(Protocol):
    """Runs an action once for all workers that request it; see `cloudcore.web.idempotency`."""

    async def __call__(
        self, principal: str, operation: str, key: str, action: Callable[[], Awaitable[bytes]], /
    ) -> bytes | None:
        """Return the outcome of `action`, or None if another worker takes too long to run it."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """An access token and its expiry."""

    value: str
    ends_at: int
    """Microseconds since the epoch."""


class Acting(msgspec.Struct, frozen=True, array_like=True):
    """The assumed role, its account and its token."""

    role_id: str
    role: str
    account_id: str
    account: str
    """The account's handle."""
    token: Token


class ConsoleSession(msgspec.Struct, frozen=True, array_like=True):
    """The content of the session cookie."""

    user_id: str
    email: str
    csrf: str
    """The token that every form of this session must carry."""
    ends_at: int
    """Microseconds since the epoch."""
    person: Token
    refresh_token: str
    acting: Acting | None = None


class _Renewed(msgspec.Struct, frozen=True, array_like=True):
    """The tokens that a refresh token was exchanged for, in this or another worker."""

    person: Token
    refresh_token: str


class Sessions:
    """Renews the tokens of sessions."""

    def __init__(self, once: Once, clock: Clock) -> None:
        self._once = once
        self._clock = clock

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        return self._clock()

    def token(self, answer: dict[str, object]) -> Token:
        """Return the access token in a response of ``/v1``."""
        seconds = msgspec.convert(answer["expires_in"], int)
        return Token(str(answer["access_token"]), self._clock() + seconds * MICROSECONDS)

    async def live(
        self, client: ControlPlaneClient, session: ConsoleSession | None
    ) -> ConsoleSession:
        """Return the session with a role token that is valid for at least another minute.

        Raises:
            SignedOut: the session has ended.
            NoRole: the session has no role, or the role is gone, or no longer assigned to the
                person.
            RoleRefused: the role no longer admits the person.

        """
        session = self._begun(session)
        acting = session.acting
        if acting is not None and self._is_live(acting.token):
            return session
        session = await self.with_person_token(client, session)
        if acting is None:
            raise NoRole
        return await self.act(client, session, acting.role_id)

    async def with_person_token(
        self, client: ControlPlaneClient, session: ConsoleSession | None
    ) -> ConsoleSession:
        """Return the session with a person's token that is valid for at least another minute.

        Raise `SignedOut` if the session has ended.
        """
        session = self._begun(session)
        for _ in range(_MAX_RENEWALS):
            if self._is_live(session.person):
                return session
            try:
                renewed = await self._renew(client, session)
            except Refused as error:
                if error.status >= 500:
                    raise
                raise SignedOut from None
            session = msgspec.structs.replace(
                session, person=renewed.person, refresh_token=renewed.refresh_token
            )
        raise SignedOut

    async def act(
        self, client: ControlPlaneClient, session: ConsoleSession, role_id: str
    ) -> ConsoleSession:
        """Assume a role; return the session with the role.

        Raise `NoRole` if there is no such role, or it is not assigned to the person; `RoleRefused`
        if the role is assigned to the person, but does not admit them.
        """
        person = client.signed(session.person.value)
        roles = await list_roles(person)
        role = next((each for each in roles if each["id"] == role_id), None)
        if role is None:
            raise NoRole
        try:
            answer = await person.post("/v1/assume-role", {"role": role_id})
        except Refused as error:
            if error.status == 404:
                raise NoRole from None
            if error.status != 403:
                raise
            myself = await person.get("/v1/users/me")
            account, user = role["account"]["name"], myself["user"]["crn"]
            raise RoleRefused(role["name"], account, user, error) from None
        acting = Acting(
            role_id,
            role["name"],
            answer["account_id"],
            answer["account_handle"],
            self.token(answer),
        )
        return msgspec.structs.replace(session, acting=acting)

    def _begun(self, session: ConsoleSession | None) -> ConsoleSession:
        if session is None or self._clock() >= session.ends_at:
            raise SignedOut
        return session

    def _is_live(self, token: Token) -> bool:
        return self._clock() < token.ends_at - _EARLY

    async def _renew(self, client: ControlPlaneClient, session: ConsoleSession) -> _Renewed:
        """Exchange a refresh token, once for all requests with the same cookie.

        A browser sends several requests at once, to different workers, and a second use of a
        refresh token would end the session.

        Raise `SignedOut` if another worker does not finish the exchange in time.
        """

        async def exchange() -> bytes:
            answer = await client.post_form(
                "/v1/oauth/token",
                {
                    "grant_type": "refresh_token",
                    "refresh_token": session.refresh_token,
                    "client_id": CONSOLE,
                },
            )
            renewed = _Renewed(self.token(answer), answer["refresh_token"])
            return msgspec.msgpack.encode(renewed)

        key = sha256(session.refresh_token.encode()).hexdigest()
        outcome = await self._once(session.user_id, _OPERATION, key, exchange)
        if outcome is None:
            raise SignedOut
        return msgspec.msgpack.decode(outcome, type=_Renewed)


async def list_roles(client: ControlPlaneClient) -> list[dict[str, Any]]:
    """Return the roles that the client's person may assume."""
    return [role async for role in client.each("/v1/users/me/roles", "roles")]
