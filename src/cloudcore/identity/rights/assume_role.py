"""Assume a role: check permission and trust, and issue the session's two credentials.

The source is the caller that assumes the role. It must be allowed `iam:AssumeRole` on the role, and
the role's trust policy must allow the source; a deny on either side refuses. For a person, the
assignment of the role replaces the permission, never the trust. The session has only the role's
permissions. It ends no later than the session or access key of the source, and is revoked together
with it.
"""

from __future__ import annotations

import re
import secrets
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from msgspec import Meta

from cloudcore.account_rows import lock_account
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import (
    AccessDenied,
    InvalidInput,
    NotFound,
    PlatformError,
    Unauthenticated,
)
from cloudcore.iam.decision import Verdict, could_allow
from cloudcore.iam.policy import TRUST_ACTION, Policy
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.credentials import hash_of, new_key_id, text_with_id
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rights import role_trust
from cloudcore.identity.rights.permissions import load_policies
from cloudcore.identity.rows import roles, sessions
from cloudcore.identity.rows.roles import AssumableRole
from cloudcore.identity.rows.service_accounts import find_key_owner_by_id
from cloudcore.identity.rows.sessions import Session
from cloudcore.identity.tokens.access_tokens import AccessTokens, clamp_duration, end_after
from cloudcore.keyring import Keyring
from cloudcore.resource_names import Crn, Uuid, parse_uuid
from cloudcore.web.context import RequestContext
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

CHAINED_SECONDS: Final = 3600
"""Maximum duration of a role session assumed from another role session."""
MAX_CHAIN: Final = 10
"""Maximum length of a chain of sessions, each assumed from the previous one."""

SESSION_PREFIX: Final = "est_"
"""Prefix of session tokens, before the session's id."""
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_=,.@-]")
_WHY: Final = {
    Verdict.ALLOWED: "its account is suspended",
    Verdict.NEEDS_RESOURCE_POLICY: "its trust policy does not allow it to you",
    Verdict.RESOURCE_DENY: "its trust policy denies it",
}
"""Reasons for a refusal, shown only to callers that may know that the role exists."""


class AssumeRole(RequestBody):
    """Which role to assume, and for how long."""

    saturates_integers: ClassVar[bool] = True

    role: Annotated[str, Meta(min_length=1, max_length=512)]
    """The role's id, its CRN, or its name in the caller's account."""
    duration_seconds: int | None = None
    """900 to the role's maximum, or to 3600 in a role session; other values are raised or lowered
    to these limits."""
    session_name: Annotated[str, Meta(pattern="^[A-Za-z0-9_=,.@-]{2,64}$(?!\\n)")] | None = None
    """Shown with the role in history and logs. By default, the e-mail address of the person or the
    name of the service account; in a role session, the name of the role session."""


class AssumedRole(ResponseBody, kw_only=True):
    """A role session with two credentials: a token for this API, and a key pair for signatures."""

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - the name of the scheme
    expires_in: int
    """Seconds until both credentials expire."""
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: RFC3339
    """When both credentials expire."""
    account_id: Uuid
    account_handle: str
    role_id: Uuid


class Credential(NamedTuple):
    """A session's credential for signing requests; it is generated before the transaction."""

    access_key_id: str
    secret: str
    secret_sealed: bytes
    session_token: str

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns of the session's row."""
        return {
            "access_key_id": self.access_key_id,
            "secret_sealed": self.secret_sealed,
            "token_sha256": hash_of(self.session_token),
        }


class _RoleRequest(NamedTuple):
    """A request to assume a role, with everything that the decision needs."""

    source: Principal
    request: AssumeRole
    sid: str
    source_ip: IPv4Address | IPv6Address | None
    now: int


def sealing_context(sid: str) -> str:
    """Return the sealing context of a session's secret; see `Keyring`."""
    return f"session:{sid}"


async def assume_role(
    ctx: RequestContext, tokens: AccessTokens, request: AssumeRole
) -> AssumedRole:
    """Assume a role and return its session.

    Raises:
        AccessDenied: the permission or the trust is missing, the account is suspended, or too many
            roles were assumed in a row.
        Unauthenticated: the session of the caller was deleted meanwhile.
        QuotaExceeded: the account's roles have the maximum number of open sessions.
        NotFound: the role does not exist, or is not visible to the caller.
        InvalidInput: `role` is not a reference to a role, or matches several roles.

    """
    assert ctx.caller is not None
    asked = _RoleRequest(ctx.caller, request, ctx.new_id(), ctx.source_ip, ctx.clock())
    credential = new_credential(ctx.keyring, asked.sid)
    printable = "".join(each if each.isprintable() else "?" for each in request.role)
    ctx.asked = TRUST_ACTION, printable  # for the audit log, if it is refused
    role, expires_at = await ctx.database.write(partial(_assume, ctx), asked, credential)
    return AssumedRole(
        access_token=issue_token(tokens, role, ctx.new_id(), asked.sid, expires_at, asked.now),
        expires_in=expires_at // MICROSECONDS - asked.now // MICROSECONDS,
        access_key_id=credential.access_key_id,
        secret_access_key=credential.secret,
        session_token=credential.session_token,
        expires_at=rfc3339(expires_at),
        account_id=role.account_id,
        account_handle=role.handle,
        role_id=role.id,
    )


def issue_token(
    tokens: AccessTokens, role: AssumableRole, jti: str, sid: str, expires_at: int, now: int
) -> str:
    """Return an access token of the role session `sid`, issued at `now`; `jti` is its id."""
    crn = role.crn
    of = {"account_id": role.account_id, "sid": sid}
    return tokens.issue(crn, jti, expires_at, issued_at=now, **of)


def assumable_role(ctx: RequestContext, tx: Connection, role: str, now: int) -> AssumableRole:
    """Return a role that the caller may assume now; raise as `assume_role` does.

    `role` is an id, a CRN or a name.
    """
    assert ctx.caller is not None
    asked = _RoleRequest(ctx.caller, AssumeRole(role=role), "", ctx.source_ip, now)
    return _locked_role(ctx, tx, asked, _allowed_role(ctx, tx, asked))


def _assume(
    ctx: RequestContext, tx: Connection, asked: _RoleRequest, credential: Credential
) -> tuple[AssumableRole, int]:
    role = _allowed_role(ctx, tx, asked)
    source = asked.source
    lock_account(tx, role.account_id)  # before the role, as changes of roles do
    role = _locked_role(ctx, tx, asked, role)
    if source.sid is not None:
        length = sessions.count_chain(tx, source.sid)
        if not length:  # deleted since the request arrived, with its role or person
            raise Unauthenticated("the session has ended")
        if length >= MAX_CHAIN:
            raise AccessDenied("roles were assumed from one another too many times in a row")
    use = sessions.OPEN.check(
        tx,
        role.account_id,
        "the account has {limit} open role sessions; use one for many calls,"
        " ask for shorter ones, or end unused ones with POST /v1/oauth/revoke",
        now=asked.now,
    )
    is_chained = source.kind is PrincipalKind.ROLE_SESSION
    most = role.max_session_seconds
    if is_chained:
        most = min(most, CHAINED_SECONDS)
    # A whole second, so that both tokens of the session expire together.
    expires_at = end_after(clamp_duration(asked.request.duration_seconds, most), asked.now)
    if is_chained:
        expires_at = min(expires_at, source.expires_at)
    key = find_key_owner_by_id(tx, source.access_key_id or "")
    session_end = sessions.find_session_end(tx, source.sid or "")
    for end in (key and key.expires_at, session_end):
        if end is not None:
            expires_at = min(expires_at, end - end % MICROSECONDS)
    name = asked.request.session_name or _session_name(source)
    session = Session(
        id=asked.sid,
        kind="role",
        created_at=asked.now,
        expires_at=expires_at,
        role_id=role.id,
        parent_sid=source.sid,
        source_crn=source.crn,
        source_access_key_id=source.access_key_id,
        session_name=name,
        first_source=source.source and source.source._replace(session_name=name).stored(),
        **credential.columns,
    )
    sessions.add_session(tx, session)
    ctx.audit(
        tx,
        TRUST_ACTION,
        [role.account_id],
        principal=source.crn,
        source=source.source,
        resource=role.crn,
        details={"session_name": name},
    )
    sessions.OPEN.emit_level(tx, role.account_id, use, asked.now)
    return role, expires_at


def _session_name(source: Principal) -> str | None:
    """Return the default name of a session; None if the source has no source identity."""
    if source.source is None:
        return None
    text = source.source.session_name or source.source.name
    return _NO_NAME.sub("-", text)[:64].ljust(2, "-")


def _allowed_role(
    ctx: RequestContext, tx: Connection, asked: _RoleRequest, *, locks: bool = False
) -> AssumableRole:
    """Return the requested role; raise an error if the source may not assume it.

    If the role belongs to another account, the error is the same as for a role that does not exist,
    except for a person to whom the role is assigned. The existence of a role in the caller's own
    account is revealed only to callers whose policies allow them to assume it. With `locks`, lock
    the identity providers of a person.
    """
    source = asked.source
    is_assigned = False
    role, refusal = _find_role(tx, asked)
    if source.kind is PrincipalKind.USER:
        is_assigned = role is not None and roles.is_assigned(tx, role.id, source.id)
        policies: tuple[Policy, ...] = (role_trust.ASSIGNED,) if is_assigned else ()
    else:
        policies = load_policies(tx, source)
    role_caller = role_trust.find_role_caller(tx, source, asked.source_ip, asked.now, locks=locks)
    is_known = role is not None and (is_assigned or role.account_id == source.account_id)
    if role is not None and is_known:
        ctx.asked = TRUST_ACTION, role.crn
    if source.kind is not PrincipalKind.USER:
        if not could_allow(policies, TRUST_ACTION, asked.source_ip, asked.now):
            raise _refused()
        named = iam_crn(source.account_id or "", "role", _own_name(asked, role))
        if not role_trust.has_permission(role_caller, policies, named):
            if is_known:
                raise _refused()
            refusal = _refused()
    if role is None:
        raise refusal
    verdict = role_trust.verdict_on(role_caller, role, policies)
    if verdict.is_allowed and role.account_status == "active":
        return role
    if is_known:
        raise _refused(_WHY.get(verdict, verdict.value))
    raise refusal


def _locked_role(
    ctx: RequestContext, tx: Connection, asked: _RoleRequest, role: AssumableRole
) -> AssumableRole:
    """Lock a role that the source may assume; return it.

    For a person, also lock the assignment, and then the identity providers, in the order in which
    the deletion of a provider locks them. Decide again for persons, and if the role has changed
    before the lock; raise as `_allowed_role` does.
    """
    source = asked.source
    is_same = roles.lock_role(tx, role.id) == role
    if source.kind is PrincipalKind.USER:
        roles.lock_assignment(tx, role.id, source.id)
    elif is_same:
        return role
    by_id = asked._replace(request=AssumeRole(role=role.id))
    return _allowed_role(ctx, tx, by_id, locks=True)


def _own_name(asked: _RoleRequest, role: AssumableRole | None) -> str:
    """Return the name of the role, in the program's account, that the program needs permission on.

    Return ``*`` if the request contains an id of no role of this account, or the CRN of another
    account's role.
    """
    if role is not None and role.account_id == asked.source.account_id:
        return role.name
    if parse_uuid(asked.request.role) is not None:
        return "*"
    if not asked.request.role.startswith("crn:"):
        return asked.request.role
    crn = _role_crn(asked.request.role)
    return crn.name if crn.account == asked.source.account_id else "*"


def _find_role(tx: Connection, asked: _RoleRequest) -> tuple[AssumableRole | None, PlatformError]:
    """Return (the requested role or None, the error to raise if it is missing or refused)."""
    source, text = asked.source, asked.request.role
    if (role_id := parse_uuid(text)) is not None:
        return roles.find_role(tx, role_id), _unknown()
    if text.startswith("crn:"):
        crn = _role_crn(text)
        role = roles.find_role_named(tx, crn.account, crn.name)
        is_own = crn.account == source.account_id
        return role, _unknown() if is_own else _refused()
    if source.account_id is not None:
        return roles.find_role_named(tx, source.account_id, text), _unknown()
    assigned = roles.list_assigned_named(tx, source.id, text, 2)
    if len(assigned) > 1:
        raise InvalidInput(
            "several accounts have a role of this name; give its CRN",
            field="role",
            reason="ambiguous",
        )
    return (assigned[0] if assigned else None), _unknown()


def _role_crn(text: str) -> Crn:
    crn = Crn.parse(text)
    if crn.service != "iam" or crn.region or crn.type != "role":
        raise InvalidInput(
            "role is not the UUID, name or CRN of a role", field="role", reason="malformed_crn"
        )
    return crn


def new_credential(keyring: Keyring, sid: str) -> Credential:
    """Return a new signing credential for the session `sid`."""
    secret = secrets.token_urlsafe(30)
    return Credential(
        new_key_id("AS"),
        secret,
        keyring.seal(secret.encode(), sealing_context(sid)),
        text_with_id(SESSION_PREFIX, sid, secrets.token_urlsafe(32)),
    )


def _refused(why: str = "") -> AccessDenied:
    """Return the error for a refusal; `why` is only for callers that may know the role exists."""
    return AccessDenied(f"you may not assume this role{why and ': '}{why}")


def _unknown() -> NotFound:
    return NotFound("there is no such role")
