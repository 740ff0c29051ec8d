"""Members of an account's organization: rules, and lookups of members."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.identity.names import email_address, missing, person_crn
from cloudcore.identity.rows import organizations
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.organizations import Membership
from cloudcore.identity.rows.users import PEOPLE, User
from cloudcore.resource_names import lower_ids, parse_uuid


def lock_organization(tx: Connection, organization_id: str) -> None:
    """Lock an organization until the transaction ends, or raise `NotFound`."""
    if not organizations.lock_if_exists(tx, organization_id):
        raise missing("organization")


def organization_of(tx: Connection, account_id: str) -> str:
    """Return the id of the organization that owns an account, or raise `NotFound`."""
    account = find_account(tx, account_id)
    if account is None or account.organization_id is None:
        raise missing("organization")
    return account.organization_id


def check_owner_remains(tx: Connection, membership: Membership) -> None:
    """Raise `Conflict` if a membership is that of the organization's last active owner.

    Call this before the membership changes, and lock the organization first.
    """
    if membership.role == "owner" and not organizations.count_other_owners(
        tx, membership.organization_id, membership.user_id
    ):
        raise Conflict(
            "an organization keeps at least one owner who is not suspended; make another member an"
            " owner first"
        )


def find_person(tx: Connection, organization_id: str, text: str) -> User:
    """Return the member that `text` refers to, by id, e-mail address or CRN.

    Raise `NotFound` if there is none, `InvalidInput` if `text` is malformed.
    """
    text = lower_ids(text)
    if text.startswith("crn:"):
        user_id = text.rpartition("/")[2]
        member = PEOPLE.find(tx, organization_id, user_id)
        if member is None or text != person_crn(member.organization_id, member.id):
            raise missing("user")
        return member
    if parse_uuid(text) is not None:
        member = PEOPLE.find(tx, organization_id, text)
    else:
        try:
            email = email_address(text)
        except InvalidInput:
            raise InvalidInput(
                "user is a UUID, an e-mail address or a CRN", field="user", reason="malformed"
            ) from None
        member = PEOPLE.find_named(tx, organization_id, email)
    if member is None:
        raise missing("user")
    return member
