"""Resource policies: what is written is kept by what it meant, and decides who else may come."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.identity.documents import stored_document
from cloudcore.identity.policy import EVERYONE, Effect, Kind, Policy
from cloudcore.identity.rows.roles import find_role_named
from cloudcore.identity.rows.service_accounts import find_service_account_named
from registry.metadata import policies
from registry.metadata.policies import NewPolicy, StoredPolicy

_FIND_NAMED: Final = {"role": find_role_named, "service-account": find_service_account_named}


def put_policy(
    tx: Connection,
    repository_id: str,
    account_id: str,
    document: Any,  # noqa: ANN401 - JSON, not yet checked
    now: int,
) -> StoredPolicy:
    """Give a repository of `account_id` a policy in place of the one it had (C4).

    Handles in it are kept as account ids, and names of roles and service accounts with the ids
    of their bearers, so that whoever takes a name later gains nothing.

    Raises:
        InvalidInput: with ``field`` and ``reason``; an account it names does not exist, or one
            of the repository's own account's principals does not.

    """
    encoded, policy = stored_document(tx, document, Kind.RESOURCE)
    names = {name for each in policy.statements for name in each.principals}
    bearers = {
        str(crn): _bearer(tx, crn, account_id)
        for crn in (Crn.parse(name) for name in names if name.startswith("crn:"))
        if crn.type in _FIND_NAMED
    }
    new = NewPolicy(msgspec.Raw(encoded.encode()), bearers, visibility(policy))
    return policies.put_policy(tx, repository_id, new, now)


def visibility(policy: Policy) -> str:
    """Return whom a policy lets in: ``public``, ``shared`` with some, or nobody (``private``)."""
    allows = [each for each in policy.statements if each.effect is Effect.ALLOW]
    if any(EVERYONE in each.principals for each in allows):
        return "public"
    return "shared" if allows else "private"


def _bearer(tx: Connection, crn: Crn, own_account_id: str) -> str:
    """Return the id of who bears a name; of another account's absent ones nothing is told."""
    found = _FIND_NAMED[crn.type](tx, crn.account, crn.name)
    if found is None and crn.account == own_account_id:
        raise InvalidInput(
            f"your account has no {crn.type} {crn.name}",
            field="principals",
            reason="no_such_principal",
        )
    return "" if found is None else found.id
