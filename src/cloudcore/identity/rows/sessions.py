"""Queries of sessions (sign-ins of persons and assumed roles), and what sessions depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Update, and_, bindparam, not_, or_, select, text, union_all

from cloudcore.db.base import Connection
from cloudcore.db.rows import deletion, find_one, given, insert_new
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.identity.names import ROLE_SESSIONS
from cloudcore.identity.rows.container_passwords import (
    remove_container_passwords,
    remove_container_passwords_of_provider,
)
from cloudcore.identity.rows.issued_tokens import KEPT_SECONDS
from cloudcore.identity.tables import (
    access_keys,
    accounts,
    auth_codes,
    memberships,
    provider_subjects,
    refresh_tokens,
    roles,
    service_accounts,
    sessions,
    users,
)
from cloudcore.quotas.limits import Counted, count_up_to_limit

_s = sessions.c
_ACTIVE: Final = text("'active'")


class Session(NamedTuple):
    """A session's row; a sign-in of a person has None in the columns of role sessions."""

    id: str
    kind: str
    created_at: int
    expires_at: int
    user_id: str | None = None
    role_id: str | None = None
    parent_sid: str | None = None
    organization_id: str | None = None
    source_crn: str | None = None
    source_access_key_id: str | None = None
    session_name: str | None = None
    access_key_id: str | None = None
    secret_sealed: bytes | None = None
    token_sha256: str | None = None
    revoked_at: int | None = None
    first_source: str | None = None
    """The stored `SourceIdentity` of a role session."""
    ends_at: int | None = None
    """When a sign-in at an identity provider ends for good; None if each refresh renews it."""


class LiveSession(NamedTuple):
    """A session in force, with its principal: a person or a role."""

    id: str
    expires_at: int
    parent_sid: str | None
    source_access_key_id: str | None
    source_service_account_id: str | None
    token_sha256: str | None
    user_id: str | None
    personal_organization_id: str | None
    role_id: str | None
    role: str | None
    """The name of the role."""
    account_id: str | None
    email: str | None = None
    """The e-mail address of the person."""
    first_source: str | None = None
    """The stored `SourceIdentity` of a role session."""
    ends_at: int | None = None
    """See `Session.ends_at`."""


_ADD_SESSION: Final = Statement(insert_new(sessions, Session._fields))
_LAST_SIGNED_IN: Final = paged(
    select(_s.user_id)
    .where(_s.user_id.in_(listed("user_ids")), _s.kind == text("'user'"))
    .order_by(_s.created_at.desc(), _s.id.desc())
)
_SESSIONS: Final = (
    select(
        _s.id,
        _s.expires_at,
        _s.parent_sid,
        _s.source_access_key_id,
        access_keys.c.service_account_id,
        _s.token_sha256,
        users.c.id,
        users.c.organization_id,
        roles.c.id,
        roles.c.name,
        roles.c.account_id,
        users.c.email,
        _s.first_source,
        _s.ends_at,
    )
    .select_from(sessions)
    .outerjoin(users, users.c.id == _s.user_id)
    .outerjoin(roles, roles.c.id == _s.role_id)
    .outerjoin(accounts, accounts.c.id == roles.c.account_id)
    .outerjoin(access_keys, access_keys.c.id == _s.source_access_key_id)
    .where(
        _s.id == bindparam("sid"),
        _s.revoked_at.is_(None),
        or_(users.c.status == _ACTIVE, accounts.c.status == _ACTIVE),
    )
)
_FIND: Final = Statement(_SESSIONS.where(_s.expires_at > bindparam("now")))
_FIND_UNREVOKED: Final = Statement(_SESSIONS)


def _chain() -> Statement:
    """Return the query for a session and its ancestors; each row tells if it has ended.

    A role session depends on the session or the access key with which the role was assumed, and so
    on the person, service account and account that these belong to.
    """
    line = select(_s.id, _s.parent_sid).where(_s.id == bindparam("sid")).cte("line", recursive=True)
    parent = sessions.alias("parent")
    line = line.union_all(
        select(parent.c.id, parent.c.parent_sid).join(line, parent.c.id == line.c.parent_sid)
    )
    of_role = accounts.alias("of_role")
    of_key = accounts.alias("of_key")
    in_force = and_(
        _s.revoked_at.is_(None),
        or_(users.c.id.is_(None), users.c.status == _ACTIVE),
        or_(of_role.c.id.is_(None), of_role.c.status == _ACTIVE),
        or_(
            access_keys.c.id.is_(None),
            and_(
                access_keys.c.status == _ACTIVE,
                or_(
                    access_keys.c.expires_at.is_(None), access_keys.c.expires_at > bindparam("now")
                ),
                service_accounts.c.status == _ACTIVE,
                of_key.c.status == _ACTIVE,
            ),
        ),
    )
    return Statement(
        select(not_(in_force))
        .select_from(line)
        .join(sessions, _s.id == line.c.id)
        .outerjoin(users, users.c.id == _s.user_id)
        .outerjoin(roles, roles.c.id == _s.role_id)
        .outerjoin(of_role, of_role.c.id == roles.c.account_id)
        .outerjoin(access_keys, access_keys.c.id == _s.source_access_key_id)
        .outerjoin(service_accounts, service_accounts.c.id == access_keys.c.service_account_id)
        .outerjoin(of_key, of_key.c.id == access_keys.c.account_id)
    )


_CHAIN: Final = _chain()
_FIND_SESSION_END: Final = Statement(select(_s.ends_at).where(_s.id == bindparam("sid")))
_sign_ins: Final = sessions.alias("sign_ins")
_FIND_SIGN_IN_EXPIRY: Final = Statement(
    select(_sign_ins.c.expires_at)
    .join(sessions, _s.parent_sid == _sign_ins.c.id)
    .where(_s.id == bindparam("sid"), _sign_ins.c.kind == text("'user'"))
)
_assumed: Final = sessions.alias("assumed")
_OF_SID: Final = sessions.update().where(_s.id == bindparam("sid"))


def _revoking(*which: ColumnElement[bool]) -> Update:
    """Return the UPDATE that revokes the unrevoked sessions that meet all these conditions."""
    unrevoked = sessions.update().where(_s.revoked_at.is_(None), *which)
    return unrevoked.values(revoked_at=bindparam("now"))


_REVOKE_SESSION: Final = Statement(_revoking(_s.id == bindparam("sid")))
_EXTEND_SESSION: Final = Statement(_OF_SID.values(expires_at=bindparam("until")))
_OTHERS: Final = _s.user_id == bindparam("of_user"), _s.id != bindparam("but")
_REVOKE_OTHERS: Final = Statement(_revoking(*_OTHERS))
_DELETE_OTHER_REFRESH: Final = Statement(
    refresh_tokens.delete().where(refresh_tokens.c.sid.in_(select(_s.id).where(*_OTHERS)))
)
_DELETE_CODES: Final = Statement(
    auth_codes.delete().where(auth_codes.c.user_id == bindparam("of_user"))
)
_SWITCH_ORGANIZATION: Final = Statement(
    _OF_SID.values(organization_id=bindparam("in_organization"))
)
_OF_PROVIDER: Final = provider_subjects.c.provider_id == bindparam("of_provider")
_LINKED: Final = union_all(
    # Only sign-ins at a provider have `ends_at`.
    select(_sign_ins.c.id)
    .join(provider_subjects, provider_subjects.c.user_id == _sign_ins.c.user_id)
    .where(_OF_PROVIDER, _sign_ins.c.ends_at.is_not(None)),
    select(_assumed.c.id)
    .join(_sign_ins, _sign_ins.c.id == _assumed.c.parent_sid)
    .join(provider_subjects, provider_subjects.c.user_id == _sign_ins.c.user_id)
    .where(_OF_PROVIDER),
)
_REVOKE_OF_PROVIDER: Final = Statement(_revoking(_s.id.in_(_LINKED)))
_DELETE_CODES_OF_PROVIDER: Final = Statement(
    auth_codes.delete().where(auth_codes.c.identity_provider_id == bindparam("of_provider"))
)
_FIND_CURRENT_ORGANIZATION: Final = Statement(
    select(_s.organization_id)
    .join(
        memberships,
        and_(
            memberships.c.organization_id == _s.organization_id,
            memberships.c.user_id == _s.user_id,
        ),
    )
    .where(_s.id == bindparam("sid"))
)
_OF_ROLE: Final = _s.role_id == bindparam("of_role")
_IS_OF_PERSON: Final = _s.parent_sid.in_(
    select(_sign_ins.c.id).where(_sign_ins.c.user_id == bindparam("of_user"))
)
_REVOKE_SESSIONS_OF_ROLE: Final = Statement(_revoking(_OF_ROLE))
_REVOKE_SESSIONS_OF_ASSIGNED: Final = Statement(_revoking(_OF_ROLE, _IS_OF_PERSON))
_OPEN: Final = count_up_to_limit(
    ROLE_SESSIONS,
    select(_s.expires_at)
    .join(roles, roles.c.id == _s.role_id)
    .where(
        roles.c.account_id == bindparam("account_id"),
        _s.revoked_at.is_(None),
        _s.expires_at > bindparam("now"),
    ),
)
OPEN: Final = Counted(ROLE_SESSIONS, _OPEN)
"""Counts the open sessions of an account's roles; it has a further bind parameter, ``now``."""
forget_sessions: Final = deletion(_s.expires_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the sessions that expired over a day ago."""
_OF_SERVICE: Final = (
    _s.source_crn == bindparam("of_service"),
    _s.session_name == bindparam("of_name"),
)
_IS_OPEN: Final = _s.revoked_at.is_(None), _s.expires_at > bindparam("now")
_IS_OF_ACCOUNT: Final = _s.role_id.in_(select(roles.c.id).where(given(roles.c.account_id)))
_REVOKE_SESSIONS_OF_SERVICE: Final = Statement(_revoking(_IS_OF_ACCOUNT, *_OF_SERVICE))
_HAS_OPEN: Final = paged(select(_s.id).where(_OF_ROLE, *_IS_OPEN, *_OF_SERVICE).order_by(_s.id))
_FIND_OPEN: Final = Statement(select(_s.id).where(_s.id.in_(listed("sids")), *_IS_OPEN))


def find_last_signed_in(tx: Connection, user_ids: Sequence[str]) -> str | None:
    """Return the id of the person who signed in last, or None if no session of them is stored."""
    return find_one(tx, str, _LAST_SIGNED_IN, user_ids=text_list(user_ids), limit=1)


def find_live_session(tx: Connection, sid: str, now: int) -> LiveSession | None:
    """Return a session that is in force, or None.

    It is not in force if it has expired or was revoked, or if its person, its account, or a session
    or access key that it depends on is no longer valid.
    """
    return _in_force(tx, tx.row(_FIND, sid=sid, now=now), now)


def find_session_of_login(tx: Connection, sid: str, now: int) -> LiveSession | None:
    """Return the session in which a login was made, even if expired: a login has its own expiry.

    Return None if the session or an ancestor was revoked, or a person, account or access key that
    one of them depends on is not active.
    """
    return _in_force(tx, tx.row(_FIND_UNREVOKED, sid=sid), now)


def count_chain(tx: Connection, sid: str) -> int:
    """Count a session and its ancestors."""
    return len(tx.rows(_CHAIN, sid=sid, now=0))


def revoke_other_sessions(tx: Connection, user_id: str, sid: str, now: int) -> None:
    """Revoke a person's sessions except `sid`; delete pending codes and container passwords."""
    tx.execute(_REVOKE_OTHERS, of_user=user_id, but=sid, now=now)
    tx.execute(_DELETE_OTHER_REFRESH, of_user=user_id, but=sid)
    tx.execute(_DELETE_CODES, of_user=user_id)
    remove_container_passwords(tx, user_id)


def revoke_sessions_of_provider(tx: Connection, provider_id: str, now: int) -> None:
    """End the sessions of the persons linked to an identity provider.

    Revoke their sign-ins at a provider, and all sessions of roles that they have assumed, since a
    role may trust the provider. A person with a password can assume a role again if the role still
    allows it. Delete the provider's pending codes, and all container passwords of these persons.
    """
    tx.execute(_REVOKE_OF_PROVIDER, of_provider=provider_id, now=now)
    tx.execute(_DELETE_CODES_OF_PROVIDER, of_provider=provider_id)
    remove_container_passwords_of_provider(tx, provider_id)


def has_open_of_service(tx: Connection, like: Session, now: int) -> bool:
    """Return True if there is an open session with the role, source and name of `like`."""
    of = {"of_role": like.role_id, "of_service": like.source_crn, "of_name": like.session_name}
    return tx.row(_HAS_OPEN, **of, now=now, limit=1) is not None


def find_open(tx: Connection, sids: Sequence[str], now: int) -> frozenset[str]:
    """Return those of `sids` whose sessions are neither expired nor revoked."""
    return frozenset(row[0] for row in tx.rows(_FIND_OPEN, sids=text_list(sids), now=now))


def _in_force(tx: Connection, row: tuple[Any, ...] | None, now: int) -> LiveSession | None:
    """Return the session in `row`, or None if `row` is None or the session is no longer valid.

    A session is valid only while the sign-in, access key and sessions that it came from are.
    """
    if row is None:
        return None
    found = LiveSession(*row)
    hangs = found.parent_sid is not None or found.source_access_key_id is not None
    if hangs and any(has_ended for (has_ended,) in tx.rows(_CHAIN, sid=found.id, now=now)):
        return None
    return found


def add_session(tx: Connection, new: Session) -> None:
    """Insert a session; do nothing if it exists."""
    tx.execute(_ADD_SESSION, **new._asdict())


def find_session_end(tx: Connection, sid: str) -> int | None:
    """Return the final end of a sign-in (`Session.ends_at`), or None if it has none."""
    row = tx.row(_FIND_SESSION_END, sid=sid)
    return row[0] if row else None


def find_sign_in_expiry(tx: Connection, sid: str) -> int | None:
    """Return the expiry of the sign-in in which a role was assumed; None for other sessions."""
    return find_one(tx, int, _FIND_SIGN_IN_EXPIRY, sid=sid)


def revoke_session(tx: Connection, sid: str, now: int) -> None:
    """Revoke a session with its tokens, its signing credential and the sessions assumed in it."""
    tx.execute(_REVOKE_SESSION, sid=sid, now=now)


def extend_session(tx: Connection, sid: str, until: int) -> None:
    """Set the expiry of a session."""
    tx.execute(_EXTEND_SESSION, sid=sid, until=until)


def switch_organization(tx: Connection, sid: str, organization_id: str) -> None:
    """Set the current organization of a session."""
    tx.execute(_SWITCH_ORGANIZATION, sid=sid, in_organization=organization_id)


def find_current_organization(tx: Connection, sid: str) -> str | None:
    """Return the id of a session's current organization; None if unset, or the person left it."""
    return find_one(tx, str, _FIND_CURRENT_ORGANIZATION, sid=sid)


def revoke_sessions_of_role(tx: Connection, role_id: str, now: int) -> None:
    """Revoke all sessions of a role, after a change of its trust policy."""
    tx.execute(_REVOKE_SESSIONS_OF_ROLE, of_role=role_id, now=now)


def revoke_sessions_of_assigned(tx: Connection, role_id: str, user_id: str, now: int) -> None:
    """Revoke a person's sessions of a role after its unassignment."""
    tx.execute(_REVOKE_SESSIONS_OF_ASSIGNED, of_role=role_id, of_user=user_id, now=now)


def revoke_sessions_of_service(
    tx: Connection, account_id: str, source_crn: str, name: str, now: int
) -> None:
    """Revoke the sessions of an account's roles that a service (its CRN) began under this name."""
    tx.execute(
        _REVOKE_SESSIONS_OF_SERVICE,
        account_id=account_id,
        of_service=source_crn,
        of_name=name,
        now=now,
    )
