"""Invitations: an e-mail address and a code. Joining takes both.

Whoever adds a person chooses the address, and nobody verifies it. So an address alone joins
nothing: the code is handed to whom the inviter means, by another way than this service.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.names import missing
from cloudcore.identity.rows import invitations as rows
from cloudcore.identity.rows.invitations import INVITATIONS, Invitation
from cloudcore.identity.rows.organizations import (
    JOINED,
    MEMBERS,
    Joined,
    Membership,
    lock_if_there,
)
from cloudcore.identity.rows.users import PEOPLE, find_user, lock_user
from cloudcore.identity.services.members import lock_organization
from cloudcore.identity.sessions import hash_of

INVITATION_SECONDS: Final = 7 * 24 * 3600
_PREFIX: Final = "ein_"
_NO_CODE: Final = "0" * 64
"""Checked if there is no invitation, so that the response time does not tell whether there is."""


class NewInvitation(NamedTuple):
    """A new invitation with its code, which is shown once."""

    invitation: Invitation
    code: str


def new_invitation(
    invitation_id: str, organization_id: str, email: str, role: str, now: int
) -> NewInvitation:
    """Generate an invitation with a random code of 256 bits, valid from `now`."""
    code = _PREFIX + secrets.token_urlsafe(32)
    expires_at = now + INVITATION_SECONDS * MICROSECONDS
    kept = Invitation(invitation_id, organization_id, email, role, hash_of(code), now, expires_at)
    return NewInvitation(kept, code)


def invite(tx: Connection, new: NewInvitation) -> NewInvitation:
    """Insert an invitation, replacing an earlier one for the same e-mail address.

    Raises:
        NotFound: the organization does not exist.
        Conflict: it has a member with this e-mail address.

    """
    invitation = new.invitation
    lock_organization(tx, invitation.organization_id)
    _check_no_member(tx, invitation.organization_id, invitation.email)
    rows.put_invitation(tx, invitation)
    return new


def revoke_invitation(tx: Connection, organization_id: str, invitation_id: str) -> None:
    """Delete an invitation, or raise `NotFound`."""
    lock_organization(tx, organization_id)
    INVITATIONS.remove(tx, organization_id, invitation_id)


def accept_invitation(
    tx: Connection, organization_id: str, user_id: str, code_sha256: str, now: int
) -> Joined:
    """Join an organization with the code of the invitation for this person's e-mail address.

    Every failure runs the same statements and raises the same error.

    Raises:
        NotFound: the code is wrong, or the invitation is expired, used, revoked or another's.
        Conflict: the organization has another member with this address meanwhile.

    """
    lock_if_there(tx, organization_id)
    status = lock_user(tx, user_id)
    user = find_user(tx, user_id)
    email = "" if user is None else user.email
    found = INVITATIONS.find_named(tx, organization_id, email)
    is_right = hmac.compare_digest(_NO_CODE if found is None else found.code_sha256, code_sha256)
    if found is None or not is_right or now >= found.expires_at or status != "active":
        raise missing("invitation")
    _check_no_member(tx, organization_id, email)
    INVITATIONS.remove(tx, organization_id, found.id)
    MEMBERS.add(tx, Membership(organization_id, user_id, found.role, now))
    return JOINED.get(tx, user_id, organization_id)


def _check_no_member(tx: Connection, organization_id: str, email: str) -> None:
    if PEOPLE.find_named(tx, organization_id, email) is not None:
        raise Conflict("the organization has a member with this address")
