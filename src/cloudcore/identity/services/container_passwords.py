"""Named passwords with which a person logs in container clients; each acts in one role.

A container password stands for a person, a role and the role's account. It grants nothing itself:
whenever it is exchanged for a token, the person, the assignment of the role, the role's trust
policy and the account are read again (`is_admitted`).
"""

from __future__ import annotations

import string
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, Conflict, Unauthenticated
from cloudcore.iam.decision import Caller, Question, decide
from cloudcore.iam.principal import Principal, PrincipalKind, SourceIdentity
from cloudcore.identity.credentials import hash_of, id_in, random_text, text_with_id
from cloudcore.identity.names import person_crn
from cloudcore.identity.rights.assume_role import assumable_role
from cloudcore.identity.rights.permissions import LoginPermission, load_policies
from cloudcore.identity.rights.role_trust import admits
from cloudcore.identity.rows.container_passwords import (
    CONTAINER_PASSWORDS,
    ContainerPassword,
    remove_expired_of_person,
)
from cloudcore.identity.rows.roles import AssumableRole
from cloudcore.identity.rows.sessions import find_live_session, find_session_end
from cloudcore.identity.rows.users import lock_user
from cloudcore.identity.tokens.access_tokens import clamp_duration
from cloudcore.web.context import RequestContext

MAX_KEPT: Final = 50
"""Maximum number of a person's container passwords."""

_LETTERS: Final = string.ascii_letters + string.digits
_LENGTH: Final = 43  # of 62 letters: 256 bits, so a plain hash is enough
_PREFIX: Final = "ecp_"


def new_text(password_id: str) -> str:
    """Return a random password that contains the id of its row."""
    return text_with_id(_PREFIX, password_id, random_text(_LETTERS, _LENGTH))


def id_of(text: str) -> str | None:
    """Return the row id in a container password, or None if the password is malformed."""
    return id_in(_PREFIX, text)


def create_container_password(
    tx: Connection,
    ctx: RequestContext,
    text: str,
    name: str,
    role_text: str,
    life_seconds: int | None,
    now: int,
) -> ContainerPassword:
    """Store a new container password of the caller, who must be a person.

    `text` is the password, `role_text` the id, CRN or name of a role; `life_seconds` None means the
    longest allowed life. If the caller signed in at an identity provider, the password expires no
    later than this sign-in.

    Raises:
        AccessDenied, NotFound, InvalidInput: as for `assume_role`.
        Unauthenticated: the sign-in has ended meanwhile.
        Conflict: the person has a container password with this name, or has `MAX_KEPT`.

    """
    person = ctx.caller
    assert person is not None
    # Whatever ends the sign-in deletes the passwords, so none may be added after it.
    lock_user(tx, person.id)
    if find_live_session(tx, person.sid or "", now) is None:
        raise Unauthenticated("the sign-in has ended")
    role = assumable_role(ctx, tx, role_text, now)
    remove_expired_of_person(tx, person.id, now)
    if CONTAINER_PASSWORDS.count(tx, person.id) >= MAX_KEPT:
        raise Conflict(f"a person keeps at most {MAX_KEPT} container passwords; revoke one")
    most = ctx.settings.container_password_seconds
    seconds = clamp_duration(most if life_seconds is None else life_seconds, most)
    end, expires_at = find_session_end(tx, person.sid or ""), now + seconds * MICROSECONDS
    made = ContainerPassword(
        id=id_of(text) or "",
        user_id=person.id,
        role_id=role.id,
        name=name,
        password_sha256=hash_of(text),
        created_at=now,
        expires_at=expires_at if end is None else min(expires_at, end),
        last_used_at=None,
        email="" if person.source is None else person.source.name,
        user_status="active",
        organization_id=person.organization_id or "",
        role=role,
    )
    if not CONTAINER_PASSWORDS.add(tx, made):
        raise Conflict("you have a container password of this name", name=name)
    _note_role(ctx, role)
    return made


def check_login_permission(
    ctx: RequestContext, tx: Connection, password: ContainerPassword, permission: LoginPermission
) -> None:
    """Raise `AccessDenied` unless the policies of a password's role grant the `permission`."""
    role = principal_of(password)
    question = Question(
        caller=Caller(role.crn, role.account_id),
        action=permission.action,
        resource=permission.resource,
        resource_account_id=password.role.account_id,
        source_ip=ctx.source_ip,
        now=ctx.clock(),
    )
    if not decide(question, load_policies(tx, role)).is_allowed:
        raise AccessDenied(f"no policy of the role {password.role.name} allows {permission.action}")


def delete_container_password(
    tx: Connection, ctx: RequestContext, user_id: str, password_id: str
) -> None:
    """Revoke a container password, or raise `NotFound`."""
    password = CONTAINER_PASSWORDS.get(tx, user_id, password_id)
    CONTAINER_PASSWORDS.remove(tx, user_id, password_id)
    ctx.details["name"] = password.name
    _note_role(ctx, password.role)


def is_admitted(
    tx: Connection,
    password: ContainerPassword,
    source_ip: IPv4Address | IPv6Address | None,
    now: int,
) -> bool:
    """Return True if a password has not expired, and its person may still assume its role."""
    if now >= password.expires_at or password.user_status != "active":
        return False
    return admits(tx, password.role, _person_of(password), source_ip, now)


def principal_of(password: ContainerPassword) -> Principal:
    """Return the principal of a container password: its role, with the person as source."""
    person, role = _person_of(password), password.role
    assert person.source is not None
    return Principal(
        kind=PrincipalKind.ROLE_SESSION,
        id=role.id,
        crn=role.crn,
        account_id=role.account_id,
        organization_id=None,
        sid=None,
        jti=password.id,
        expires_at=password.expires_at,
        container_password_id=password.id,
        source=person.source._replace(session_name=password.name),
    )


def _person_of(password: ContainerPassword) -> Principal:
    crn = person_crn(password.organization_id, password.user_id)
    return Principal(
        kind=PrincipalKind.USER,
        id=password.user_id,
        crn=crn,
        account_id=None,
        organization_id=password.organization_id,
        sid=None,
        jti=password.id,
        expires_at=password.expires_at,
        source=SourceIdentity(crn, password.email),
    )


def _note_role(ctx: RequestContext, role: AssumableRole) -> None:
    """Assign the change's audit event to the role's account, and add the role's CRN to it."""
    ctx.event_owner = role.account_id
    ctx.details["role"] = role.crn
