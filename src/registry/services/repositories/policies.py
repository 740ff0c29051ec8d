"""Store, read and delete resource policies, with the ids of the principals they name."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.iam.decision import Caller, Question, decide
from cloudcore.iam.policy import EVERYONE, Effect, Policy, policy_of
from cloudcore.identity.rights.documents import FIND_NAMED, stored_document
from cloudcore.resource_names import Crn
from cloudcore.web.revisions import require_revision
from registry.metadata.repositories import policies
from registry.metadata.repositories.policies import NewPolicy, StoredResourcePolicy
from registry.services.repositories.names import lock_existing_repository
from registry.services.resource_kinds import REPOSITORY_RULES


class Setter(NamedTuple):
    """The caller who sets a policy, with its address, its own policies and the repository."""

    caller: Caller
    identity: Sequence[Policy]
    source_ip: IPv4Address | IPv6Address | None
    resource: str
    """CRN of the repository."""
    account_id: str
    """The id of the repository's account."""
    now: int

    def may(self, action: str, attached: Policy) -> bool:
        """Return True if the caller may do `action` under the resource policy `attached`."""
        question = Question(
            self.caller, action, self.resource, self.account_id, self.source_ip, self.now
        )
        return decide(question, self.identity, attached).is_allowed


_NO_POLICY: Final = Policy(())


def put_resource_policy(
    tx: Connection,
    repository_id: str,
    account_id: str,
    document: Any,  # noqa: ANN401 - JSON, not yet checked
    now: int,
    setter: Setter | None = None,
    revision: int | None = None,
) -> StoredResourcePolicy:
    """Insert or replace the policy of a repository of `account_id`.

    The ids of the principals that it names are stored with it, so that a later principal of the
    same name gets no rights.

    Raises:
        InvalidInput: with ``field`` and ``reason``; also if a named principal of the repository's
            own account does not exist.
        Conflict: the policy would lock out the `setter`; or `revision` is not None, and the stored
            policy has another revision.
        NotFound: the repository was deleted meanwhile.

    """
    lock_existing_repository(tx, repository_id)
    _require(tx, repository_id, revision)
    stored = stored_document(tx, document, REPOSITORY_RULES, account_id)
    policy = stored.policy
    names = {name for each in policy.statements for name in each.principals}
    own = {
        str(crn): _principal_id(tx, crn)
        for crn in (Crn.parse(name) for name in names if name.startswith("crn:"))
        if crn.type in FIND_NAMED and crn.account == account_id
    }
    if setter is not None:
        _check_lock_out(tx, repository_id, policy, setter)
    new = NewPolicy(msgspec.Raw(stored.text.encode()), {**stored.ids, **own}, _visibility(policy))
    return policies.store_resource_policy(tx, repository_id, new, now)


def get_resource_policy(tx: Connection, repository_id: str) -> StoredResourcePolicy:
    """Return a repository's policy; raise `NotFound` if it has none."""
    stored = policies.find_resource_policy(tx, repository_id)
    if stored is None:
        raise _no_policy()
    return stored


def delete_resource_policy(tx: Connection, repository_id: str, revision: int | None = None) -> None:
    """Delete a repository's policy.

    Raise `Conflict` if `revision` is not None and the policy has another, `NotFound` if there is no
    policy, or the repository was deleted meanwhile.
    """
    lock_existing_repository(tx, repository_id)
    _require(tx, repository_id, revision)
    if not policies.remove_resource_policy(tx, repository_id):
        raise _no_policy()


def _require(tx: Connection, repository_id: str, revision: int | None) -> None:
    if revision is not None:
        stored = policies.find_resource_policy(tx, repository_id)
        require_revision(stored.revision if stored else 0, revision)


def _check_lock_out(tx: Connection, repository_id: str, policy: Policy, setter: Setter) -> None:
    """Raise `Conflict` if the policy's deny statements would deny the setter an allowed action.

    Each decision is made as for a request by the setter, from its address at this time. An action
    that is already denied may stay denied.
    """
    stored = policies.find_resource_policy(tx, repository_id)
    before = _NO_POLICY if stored is None else policy_of(stored.document, REPOSITORY_RULES)
    undenied = Policy(tuple(each for each in policy.statements if each.effect is Effect.ALLOW))
    lost = [
        action
        for action in sorted(REPOSITORY_RULES.actions)
        if setter.may(action, before)
        and setter.may(action, undenied)
        and not setter.may(action, policy)
    ]
    if lost:
        words = f"the policy would lock you out of {', '.join(lost)}; use force if you intend that"
        raise Conflict(words, actions=lost)


def _visibility(policy: Policy) -> str:
    """Return ``public`` if a policy admits everyone, ``shared`` if some, ``private`` if nobody."""
    allows = [each for each in policy.statements if each.effect is Effect.ALLOW]
    if any(EVERYONE in each.principals for each in allows):
        return "public"
    return "shared" if allows else "private"


def _no_policy() -> NotFound:
    return NotFound("the repository has no policy")


def _principal_id(tx: Connection, crn: Crn) -> str:
    """Return the id of the principal `crn`, which must exist in the repository's account."""
    found = FIND_NAMED[crn.type](tx, crn.account, crn.name)
    if found is None:
        raise InvalidInput(
            f"your account has no {crn.type} {crn.name}",
            field="principals",
            reason="no_such_principal",
        )
    return found.id
