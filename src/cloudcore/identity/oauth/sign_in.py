"""Sign a person in through the page: read the authorization request, check forms, issue the code.

The request is that of RFC 6749 §4.1.1 and RFC 7636 §4.3. An error is sent to the redirect URI only
if the URI belongs to the client; otherwise it is shown to the person on a page.

A form is valid for ten minutes, and only in the browser whose cookie has the form's nonce. It
contains the sealed request of the client, so the browser cannot change the request.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, InvalidInput, Unauthenticated
from cloudcore.iam.passwords import check_new_password, salt_of
from cloudcore.identity.audit import count_failed_sign_ins, record_sign_in
from cloudcore.identity.credentials import hash_of, opened_text, sealed_text
from cloudcore.identity.oauth.attempts import KnownBrowser, attempt_at, attempt_in, attempt_of
from cloudcore.identity.oauth.forms import CLI, CONSOLE, MAX_PARAMETERS, Form, parse_parameters
from cloudcore.identity.oauth.sessions import OUT_OF_BAND, CodeDestination, new_code
from cloudcore.identity.rows import issued_tokens
from cloudcore.identity.rows.issued_tokens import Code
from cloudcore.identity.rows.sessions import find_last_signed_in
from cloudcore.identity.rows.users import User, find_user, list_users_by_email, lock_user
from cloudcore.identity.services.users import change_password
from cloudcore.keyring import Keyring
from cloudcore.web.context import RequestContext
from cloudcore.web.query import parse_fields

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of S256, RFC 7636 §4.2
_STATE: Final = re.compile(r"[!-~]{0,512}")
_SIGNED_IN: Final = "/console/signed-in"
_LOOPBACK: Final = re.compile(r"http://(?:127[.]0[.]0[.]1|\[::1\]):([1-9][0-9]{0,4})/callback")
_NOT_UTF8: Final = "\N{REPLACEMENT CHARACTER}"


class AuthorizationRequest(NamedTuple):
    """The parsed parameters of an authorization request."""

    destination: CodeDestination
    code_challenge: str
    state: str


class AuthorizationRefused(InvalidInput):
    """A request that is refused with a redirect to `location`."""

    def __init__(self, destination: CodeDestination, state: str, code: str, message: str) -> None:
        """Refuse with an error `code` of RFC 6749 §4.1.2.1; `location` includes `state`."""
        super().__init__(message)
        told = {"error": code, "error_description": message} | ({"state": state} if state else {})
        self.location = f"{destination.redirect_uri}?{urlencode(told)}"


def read_request(console_url: str, encoded: bytes) -> AuthorizationRequest:
    """Parse the query of an authorization request; `console_url` is the URL of this install.

    Raises:
        AuthorizationRefused: a parameter is missing, repeated or not supported.
        InvalidInput: the client or its `redirect_uri` is unknown; or a parameter is wrong, and
            `redirect_uri` is `OUT_OF_BAND`, so the error cannot be sent by a redirect.

    """
    sent = _values(encoded)
    destination = _destination(console_url, _only(sent, "client_id"), _only(sent, "redirect_uri"))
    try:
        query = parse_parameters(encoded)
        _check_type(query)
        return AuthorizationRequest(destination, *_checked(query, destination))
    except InvalidInput as error:
        if destination.redirect_uri == OUT_OF_BAND:
            raise
        code = "unsupported_response_type" if isinstance(error, _OtherType) else "invalid_request"
        state = _only(sent, "state")
        state = "" if _NOT_UTF8 in state else state
        raise AuthorizationRefused(destination, state, code, error.message) from None


class _OtherType(InvalidInput):
    """The request has a `response_type` other than ``code``."""


def _values(encoded: bytes) -> dict[str, list[str]]:
    """Map each parameter to its values, even in an invalid query."""
    found: dict[str, list[str]] = {}
    fields = parse_fields(
        encoded, max_fields=MAX_PARAMETERS, counts_empty=False, not_utf8="replace"
    )
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found


def _only(sent: dict[str, list[str]], name: str) -> str:
    """Return the value of a parameter that occurs exactly once, or else an empty string."""
    values = sent.get(name, [])
    return values[0] if len(values) == 1 else ""


def _check_type(query: Form) -> None:
    wanted = query.get("response_type", "")
    if wanted != "code":
        refusal = _OtherType if wanted else InvalidInput
        raise refusal("response_type must be code")


def _checked(query: Form, destination: CodeDestination) -> tuple[str, str]:
    """Return (code challenge, state) of a request; raise `InvalidInput` if one is malformed."""
    if query.get("code_challenge_method") != "S256":
        raise InvalidInput("code_challenge_method must be S256")
    challenge, state = query.get("code_challenge", ""), query.get("state", "")
    if not _CHALLENGE.fullmatch(challenge):
        raise InvalidInput("code_challenge must be 43 characters of base64url")
    if destination.redirect_uri != OUT_OF_BAND and not _STATE.fullmatch(state):
        raise InvalidInput("state is at most 512 printable characters")
    return challenge, state


def _destination(console_url: str, client_id: str, redirect_uri: str) -> CodeDestination:
    """Check the client and its `redirect_uri`; only the command line may use a loopback address.

    Raise `InvalidInput` if there is no such client, or it may not use this `redirect_uri`.
    """
    if client_id == CONSOLE:
        allowed, words = console_url + _SIGNED_IN, ""
    elif client_id == CLI:
        allowed, words = OUT_OF_BAND, ", or http://127.0.0.1:PORT/callback"
    else:
        raise InvalidInput(f"client_id must be {CLI} or {CONSOLE}")
    if redirect_uri != allowed and not (client_id == CLI and _is_loopback_redirect(redirect_uri)):
        raise InvalidInput(f"redirect_uri must be {allowed}{words}")
    return CodeDestination(client_id, redirect_uri)


def _is_loopback_redirect(redirect_uri: str) -> bool:
    """Return True for a loopback URL that the command line may listen on (RFC 8252 §7.3)."""
    found = _LOOPBACK.fullmatch(redirect_uri)
    return found is not None and int(found[1]) < 1 << 16


_FORM_SECONDS: Final = 600
_CONTEXT: Final = "sign-in form"
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class SignInForm(msgspec.Struct, array_like=True, frozen=True):
    """The content of a form's sealed hidden field."""

    nonce_sha256: str
    code_challenge: str
    expires_at: int
    destination: CodeDestination
    state: str = ""
    email: str = ""
    """E-mail address of a person who entered a one-time password and must replace it; not unique.
    Empty in the form of the sign-in page."""
    kept_sha256: str = ""
    """SHA-256 of the one-time password's stored hash, so that the form is valid for one change."""
    user_id: str = ""

    def seal(self, keyring: Keyring) -> str:
        """Seal the form, for a hidden field."""
        return sealed_text(keyring, self, _CONTEXT)


def new_nonce() -> str:
    """Return a random nonce for a browser's cookie."""
    return secrets.token_urlsafe(32)


def known_nonce(cookie: str | None) -> str | None:
    """Return the nonce in a browser's cookie, or None if the cookie is missing or invalid."""
    return cookie if cookie is not None and _NONCE.fullmatch(cookie) else None


def begin(ctx: RequestContext, asked: AuthorizationRequest, nonce: str) -> SignInForm:
    """Return the form for an authorization request."""
    return _form(ctx, nonce, asked.code_challenge, asked.destination, asked.state)


def resume(ctx: RequestContext, hidden: str, nonce: str | None) -> SignInForm:
    """Unseal the form that a browser sends back.

    Raise `AccessDenied` if the form is forged, from another browser, or expired.
    """
    form = opened_text(ctx.keyring, hidden, _CONTEXT, SignInForm)
    if form is None or ctx.clock() >= form.expires_at:
        raise _stale()
    if nonce is None or not hmac.compare_digest(form.nonce_sha256, hash_of(nonce)):
        raise _stale()
    return form


def renew(
    ctx: RequestContext, form: SignInForm, nonce: str, user: User | None = None
) -> SignInForm:
    """Return a form with a new expiry, for another attempt or for the new password of `user`."""
    renewed = _form(ctx, nonce, form.code_challenge, form.destination, form.state)
    if user is None:
        return renewed
    return msgspec.structs.replace(
        renewed, email=user.email, kept_sha256=hash_of(user.password), user_id=user.id
    )


async def check_password(
    ctx: RequestContext, email: str, password: str, browser: KnownBrowser | None
) -> User:
    """Return the person with this e-mail address and password.

    Several persons can have the address. If the password matches more than one, return the person
    of the known browser, else the person who signed in last, else the oldest. All failures take the
    same time and give the same error.

    Raises:
        TooManyAttempts: too many attempts; see `cloudcore.identity.oauth.attempts`.
        Unavailable: too many passwords wait to be hashed.
        Unauthenticated: nobody has this address and password, or the person is suspended.

    """
    address = email.strip().lower()
    persons = await ctx.database.read(list_users_by_email, address)
    if browser is None or all(user.id != browser.user_id for user in persons):
        attempt = attempt_at(ctx, address)
        matching = await attempt.find_matching(ctx, password, persons)
    else:
        attempt = attempt_in(browser)
        matching = await attempt.find_matching(ctx, password, persons)
        known = [user for user in matching if user.id == browser.user_id]
        if known:
            await attempt.credit_back(ctx)
            return known[0]
        # The browser is known only for its person; for others with the address it is unknown.
        stranger = attempt_at(ctx, address)
        if not await stranger.is_admitted(ctx):
            matching = []
        elif matching:
            await stranger.credit_back(ctx)
    if not matching:
        count_failed_sign_ins(ctx, persons)
        raise Unauthenticated("the e-mail address or the password is wrong")
    await attempt.credit_back(ctx)
    return await _choose_person(ctx, matching)


async def _choose_person(ctx: RequestContext, matching: Sequence[User]) -> User:
    """Return the person who signed in last, or else the first; `matching` is oldest first."""
    if len(matching) == 1:
        return matching[0]
    last = await ctx.database.read(find_last_signed_in, [user.id for user in matching])
    return next((user for user in matching if user.id == last), matching[0])


async def give_code(ctx: RequestContext, form: SignInForm, user: User) -> str:
    """Issue a code for a person whose password has just been checked.

    Raise `Unauthenticated` if the password was changed, or the person suspended, since the check.
    """
    code, row = new_code(user.id, form.destination, form.code_challenge, ctx.clock())
    await ctx.database.write(add_code_of, user, row)
    return code


def add_code_of(tx: Connection, user: User, code: Code) -> None:
    """Insert the `code` of a person whose password was checked before the transaction.

    Compare the stored hash again, since a reset of the password deletes the person's codes, and no
    code may be inserted after the reset. Raise `Unauthenticated` as `give_code` does.
    """
    lock_user(tx, user.id)
    found = find_user(tx, user.id)
    if found is None or found.status != "active" or found.password != user.password:
        raise Unauthenticated("the e-mail address or the password is wrong")
    issued_tokens.add_code(tx, code)


async def choose_password(
    ctx: RequestContext, form: SignInForm, password: str, repeated: str
) -> tuple[User, str]:
    """Replace a one-time password; return the person and the code of the sign-in.

    Raises:
        InvalidInput: the new password is too short or too long, is not the same twice, or is the
            one-time password.
        AccessDenied: the form was used already, or the person was suspended meanwhile.
        TooManyAttempts: too many attempts.
        Unavailable: too many passwords wait to be hashed.

    """
    user = await ctx.database.read(find_user, form.user_id)
    if user is None or user.status != "active" or hash_of(user.password) != form.kept_sha256:
        raise _stale()
    if password != repeated:
        raise InvalidInput("the two passwords differ")
    check_new_password(password)
    attempt = attempt_of(user)
    if await attempt.verify(ctx, password, user.password):
        raise InvalidInput("choose another password than the one you were given")
    kept = await ctx.passwords.hash(password, attempt.client, salt_of(user.password))
    code, row = new_code(user.id, form.destination, form.code_challenge, ctx.clock())

    def change(tx: Connection) -> None:
        change_password(tx, user.id, user.password, kept, "", ctx.clock())
        record_sign_in(ctx, tx, user, "iam:ChangePassword", instead_of="a one-time password")
        issued_tokens.add_code(tx, row)

    await ctx.database.write(change)
    return user, code


def _form(
    ctx: RequestContext, nonce: str, code_challenge: str, destination: CodeDestination, state: str
) -> SignInForm:
    expires_at = ctx.clock() + _FORM_SECONDS * MICROSECONDS
    return SignInForm(hash_of(nonce), code_challenge, expires_at, destination, state)


def _stale() -> AccessDenied:
    return AccessDenied("this form has expired; open the link again")
