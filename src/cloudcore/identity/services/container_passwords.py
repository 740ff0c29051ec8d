"""Named passwords with which a person logs container clients in, in one role.

A container password stands for a person, a role and the role's account. It grants nothing: for each
token that it is exchanged for, the person, the assignment of the role, the role's trust policy and
the account are read again (`is_admitted`).
"""

from __future__ import annotations

import re
import secrets
import string
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, Conflict
from cloudcore.iam.decision import Caller, Question, decide
from cloudcore.iam.principal import Principal, PrincipalKind, Source
from cloudcore.identity.assume_role import assumable_role
from cloudcore.identity.login_permission import LoginPermission
from cloudcore.identity.names import iam_crn, missing, person_crn
from cloudcore.identity.permissions import load_policies
from cloudcore.identity.role_trust import admits
from cloudcore.identity.rows import container_passwords as rows
from cloudcore.identity.rows.assumable_roles import AssumableRole
from cloudcore.identity.rows.container_passwords import ContainerPassword, Holder
from cloudcore.identity.rows.sessions import find_session_end
from cloudcore.identity.sessions import hash_of
from cloudcore.identity.tokens import MIN_SECONDS
from cloudcore.web.context import RequestContext

MAX_KEPT: Final = 50
"""Maximum number of a person's container passwords."""

_LETTERS: Final = string.ascii_letters + string.digits
_LENGTH: Final = 43  # of 62 letters: 256 bits, so a plain hash is enough
_PASSWORD: Final = re.compile(
    r"ecp_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})_.+"
)
"""Its id follows the prefix, by which secret scanners recognize it."""


class Wanted(NamedTuple):
    """A container password that a person asks for."""

    name: str
    role: str
    """Id, CRN or name of the role."""
    seconds: int | None
    """Its life; None for the longest."""


def new_text(password_id: str) -> str:
    """Return a random password with this id."""
    secret = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
    return f"ecp_{password_id.replace('-', '')}_{secret}"


def id_of(text: str) -> str | None:
    """Return the id in a container password, or None if it is malformed."""
    found = _PASSWORD.fullmatch(text)
    return None if found is None else "-".join(found.groups())


def life_of(seconds: int | None, most: int) -> int:
    """Return the requested life, brought within `MIN_SECONDS` and the operator's `most`."""
    return min(max(most if seconds is None else seconds, MIN_SECONDS), most)


def create_container_password(
    tx: Connection, ctx: RequestContext, password_id: str, text: str, wanted: Wanted, now: int
) -> Holder:
    """Store a new container password of the caller, who must be a person.

    It ends no later than a sign-in by an identity provider does that it is made in.

    Raises:
        AccessDenied, NotFound, InvalidInput: as for `assume_role`.
        Conflict: the person has one of this name, or `MAX_KEPT`.

    """
    person = ctx.caller
    assert person is not None
    role = assumable_role(ctx, tx, wanted.role, now)
    rows.remove_expired_of_person(tx, person.id, now)
    if rows.count_container_passwords(tx, person.id, "") >= MAX_KEPT:
        raise Conflict(f"a person keeps at most {MAX_KEPT} container passwords; revoke one")
    seconds = life_of(wanted.seconds, ctx.settings.container_password_seconds)
    end, expires_at = find_session_end(tx, person.sid or ""), now + seconds * MICROSECONDS
    password = ContainerPassword(
        id=password_id,
        user_id=person.id,
        role_id=role.id,
        name=wanted.name,
        password_sha256=hash_of(text),
        created_at=now,
        expires_at=expires_at if end is None else min(expires_at, end),
    )
    if not rows.add_container_password(tx, password):
        raise Conflict("you have a container password of this name", name=wanted.name)
    _note_role(ctx, role)
    return get_container_password(tx, person.id, password_id)


def check_logs_in(
    ctx: RequestContext, tx: Connection, holder: Holder, permission: LoginPermission
) -> None:
    """Check that the policies of a password's role allow what a login takes.

    Raises:
        AccessDenied.

    """
    role = principal_of(holder)
    question = Question(
        caller=Caller(role.crn, role.account_id),
        action=permission.action,
        resource=permission.resource,
        resource_account_id=holder.role.account_id,
        source_ip=ctx.source_ip,
        now=ctx.clock(),
    )
    if not decide(question, load_policies(tx, role)).is_allowed:
        raise AccessDenied(f"no policy of the role {holder.role.name} allows {permission.action}")


def get_container_password(tx: Connection, user_id: str, password_id: str) -> Holder:
    """Return a container password of a person, or raise `NotFound`."""
    found = rows.find_container_password(tx, user_id, password_id)
    if found is None:
        raise missing("container password")
    return found


def delete_container_password(
    tx: Connection, ctx: RequestContext, user_id: str, password_id: str
) -> None:
    """Revoke a container password."""
    holder = get_container_password(tx, user_id, password_id)
    rows.remove_container_password(tx, password_id)
    ctx.details["name"] = holder.password.name
    _note_role(ctx, holder.role)


def is_admitted(
    tx: Connection, holder: Holder, source_ip: IPv4Address | IPv6Address | None, now: int
) -> bool:
    """Return True if a password is in force: not expired, and its role admits its person."""
    if now >= holder.password.expires_at or holder.user_status != "active":
        return False
    return admits(tx, holder.role, _person_of(holder), source_ip, now)


def principal_of(holder: Holder) -> Principal:
    """Return the role for which a container password stands."""
    person, role, password = _person_of(holder), holder.role, holder.password
    assert person.source is not None
    return Principal(
        kind=PrincipalKind.ROLE_SESSION,
        id=role.id,
        crn=iam_crn(role.account_id, "role", role.name),
        account_id=role.account_id,
        organization_id=None,
        sid=None,
        jti=password.id,
        expires_at=password.expires_at,
        container_password_id=password.id,
        source=person.source._replace(session_name=password.name),
    )


def _person_of(holder: Holder) -> Principal:
    crn = person_crn(holder.organization_id, holder.password.user_id)
    return Principal(
        kind=PrincipalKind.USER,
        id=holder.password.user_id,
        crn=crn,
        account_id=None,
        organization_id=holder.organization_id,
        sid=None,
        jti=holder.password.id,
        expires_at=holder.password.expires_at,
        source=Source(crn, holder.email),
    )


def _note_role(ctx: RequestContext, role: AssumableRole) -> None:
    """Record the change in the audit log of the account in which the password acts."""
    ctx.event_owner = role.account_id
    ctx.details["role"] = iam_crn(role.account_id, "role", role.name)
