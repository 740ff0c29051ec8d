"""Record sign-ins and sign-outs in the audit log, and count failed sign-ins.

A person's sign-in is an event of each of the person's organizations, at most `_MAX_ORGANIZATIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.iam.audit import SIGN_IN
from cloudcore.iam.principal import SourceIdentity, read_source
from cloudcore.identity.names import iam_crn, person_crn, source_of_program
from cloudcore.identity.rows.organizations import JOINED
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS, KeyOwner
from cloudcore.identity.rows.sessions import LiveSession
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.provider_sign_ins import SignedInPerson
from cloudcore.web.context import RequestContext

SIGN_OUT: Final = "iam:SignOut"
LINK_USER: Final = "iam:LinkUser"

_MAX_ORGANIZATIONS: Final = 20


def record_sign_in(
    ctx: RequestContext, tx: Connection, user: User, action: str = SIGN_IN, **details: str | None
) -> None:
    """Record a person's sign-in, in the transaction that begins the session."""
    _record(ctx, tx, action, organizations_of(user.id, tx), user.source, **details)


def _record(
    ctx: RequestContext,
    tx: Connection,
    action: str,
    owners: Sequence[str],
    source: SourceIdentity,
    **details: str | None,
) -> None:
    """Record an action of a person or service account; `owners` may read the event."""
    ctx.audit(tx, action, owners, principal=source.crn, source=source, details=details)


def record_provider_sign_in(ctx: RequestContext, tx: Connection, made: SignedInPerson) -> None:
    """Record what a sign-in at an identity provider changed, in the transaction of the sign-in.

    The provider is the principal: it named the person and the groups. The person's sign-in itself
    is recorded when the code is exchanged.
    """
    user, provider = made.user, made.provider
    principal = iam_crn(provider.organization_id, "identity-provider", provider.id)
    record = partial(ctx.audit, tx, principal=principal, source=user.source)
    for action, is_done in (("iam:CreateUser", made.is_created), (LINK_USER, made.is_linked)):
        if is_done:
            record(action, [provider.organization_id], resource=user.crn)
    for role in made.roles:
        record(
            "iam:UnassignRole" if role.is_taken else "iam:AssignRole",
            [role.account_id],
            resource=iam_crn(role.account_id, "role", role.name),
            details={"user_id": user.id},
        )


def count_failed_sign_ins(ctx: RequestContext, users: Sequence[User]) -> None:
    """Count a wrong password for each of `users`, all persons with one e-mail address.

    No query is made now, so that the response takes the same time if nobody has the address.
    """
    for user in users:
        owners = partial(organizations_of, user.id)
        ctx.note_refusal(
            SIGN_IN, principal=user.crn, source=user.source, owners=owners, resource=user.crn
        )


def record_key_use(ctx: RequestContext, tx: Connection, owner: KeyOwner) -> None:
    """Record that a service account got an access token for its key pair."""
    _record(ctx, tx, SIGN_IN, [owner.account_id], owner.source, access_key_id=owner.key_id)


def count_wrong_key(ctx: RequestContext, owner: KeyOwner) -> None:
    """Count a refused key pair: its secret is wrong, it is unusable, or its owner is suspended."""
    crn, account_id = owner.source.crn, owner.account_id
    ctx.note_refusal(SIGN_IN, principal=crn, source=owner.source, owner_id=account_id, resource=crn)


def record_program_sign_out(
    ctx: RequestContext, tx: Connection, account_id: str, service_account: str, ended: str
) -> None:
    """Record that a service account's token or login was revoked; `ended` says which."""
    source = source_of_program(account_id, service_account)
    _record(ctx, tx, SIGN_OUT, [account_id], source, ended=ended)


def record_login_end(
    ctx: RequestContext, tx: Connection, account_id: str, service_account_id: str
) -> None:
    """Record that a login was revoked; do nothing if its service account was deleted."""
    program = SERVICE_ACCOUNTS.find(tx, account_id, service_account_id)
    if program is not None:
        record_program_sign_out(ctx, tx, account_id, program.name, "login")


def record_sign_out(ctx: RequestContext, tx: Connection, session: LiveSession, ended: str) -> None:
    """Record that a session, or a token or login of it, was revoked; `ended` says which."""
    if session.user_id is not None:
        crn = person_crn(session.personal_organization_id or "", session.user_id)
        owners: Sequence[str] = organizations_of(session.user_id, tx)
        source: SourceIdentity | None = SourceIdentity(crn, session.email or "")
    else:
        account_id = session.account_id or ""
        crn, owners = iam_crn(account_id, "role", session.role or ""), [account_id]
        source = read_source(session.first_source)
    details = {"ended": ended}
    ctx.audit(tx, SIGN_OUT, owners, principal=crn, source=source, details=details)


def organizations_of(user_id: str, tx: Connection) -> Sequence[str]:
    """Return the ids of a person's organizations, at most `_MAX_ORGANIZATIONS`."""
    return [each.id for each in JOINED.list(tx, user_id, "", "", _MAX_ORGANIZATIONS)]
