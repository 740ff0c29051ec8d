"""Store policy documents as written, with the ids that their names had at that moment.

A handle means the account that has the handle when the document is written. The CRN of another
account's role or service account means the principal that has the CRN at that time. So a principal
that takes the name later gains nothing. The ids are stored beside the document, in a map from
names.

It is not revealed whether another account, its roles or service accounts exist: an unknown name is
accepted, shown as written, and matches no principal, even if a principal takes the name later. In a
resource pattern, an unknown handle matches nothing, and costs as much to compare as an id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.iam import policy as policies
from cloudcore.iam.patterns import Patterns
from cloudcore.iam.policy import Policy, PolicyKind, ResourceRules, WeighedCache
from cloudcore.identity.names import is_handle
from cloudcore.identity.rows.accounts import find_account_ids
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS
from cloudcore.resource_names import Crn, lower_ids, parse_uuid

_NAMING: Final = ("principals", "resources")
"""Parts of a statement that name accounts."""
_CRN_PARTS: Final = 5
_ACCOUNT_PART: Final = 3
_LONGEST_ACCOUNT: Final = "00000000-0000-0000-0000-000000000000"
_NO_ACCOUNT: Final = " " * len(_LONGEST_ACCOUNT)
"""Replaces a handle that means no account in patterns. No CRN has a space, so it matches nothing;
since it is as long as an id, a decision costs as much as for an existing account."""
_OF_NO_ACCOUNT: Final = ("user/", "organization/", "identity-provider/", "service/")
FIND_NAMED: Final = {"role": ROLES.find_named, "service-account": SERVICE_ACCOUNTS.find_named}
"""Maps the type in a principal's CRN to the query for the principal's row."""

Ids = Mapping[str, str]

_policies: Final[WeighedCache[tuple[str, str, PolicyKind | ResourceRules], Policy]] = WeighedCache()
_ids: Final[WeighedCache[str, Ids]] = WeighedCache()
_BYTES_BY_CHARACTER: Final = 10
"""Estimated bytes in memory of a map of ids, for each character of its JSON."""
_DICT_BYTES: Final = 500


class StoredDocument(NamedTuple):
    """A policy document as stored."""

    text: str
    """JSON as written, except that the handle of the policy's own account is replaced by the id."""
    ids: dict[str, str]
    """Maps names to ids: the handle of an account to the account's id, and the CRN of another
    account's principal (with the account's id in it) to the principal's id, or to "" if there was
    no such principal."""
    policy: Policy
    """The parsed document, for evaluation."""

    @property
    def encoded_ids(self) -> str:
        """Return `ids` encoded as JSON, as stored."""
        return json_text(self.ids)


def stored_document(
    tx: Connection,
    document: Any,  # noqa: ANN401 - JSON, not yet checked
    kind: PolicyKind | ResourceRules,
    account_id: str,
) -> StoredDocument:
    """Check a document (decoded JSON) of an account; return it in its stored form.

    Raise `InvalidInput` if the document is not a policy of this kind.
    """
    policies.policy_of(document, kind)
    document = {**document, "statements": [*map(_with_lower_ids, document["statements"])]}
    named = sorted(set(_accounts(document)))
    # A document with ids is longer. It must be valid whether or not the accounts exist.
    policies.policy_of(_with_ids(document, dict.fromkeys(named, _LONGEST_ACCOUNT)), kind)
    ids = find_account_ids(tx, named)
    own = {word: found for word, found in ids.items() if found == account_id}
    kept = _with_ids(document, own)
    foreign = {word: found for word, found in ids.items() if word != found != account_id}
    encoded = msgspec.json.encode(kept)
    policies.check_size(encoded)
    policy = _evaluated(kept, foreign, kind)
    bearers = {
        str(crn): _principal_id_of(tx, crn) for crn in _foreign_principals(policy, account_id)
    }
    return StoredDocument(encoded.decode(), foreign | bearers, policy)


def read_stored(text: str, encoded_ids: str, kind: PolicyKind | ResourceRules) -> Policy:
    """Return the policy of a stored document, with names replaced by ids; results are cached."""
    key = (text, encoded_ids, kind)
    policy = _policies.get(key)
    if policy is None:
        policy = _evaluated(msgspec.json.decode(text), read_ids(encoded_ids), kind)
        _policies.keep(key, policy, policies.memory_of(policy) + len(text) + len(encoded_ids))
    return policy


def read_ids(encoded_ids: str) -> Ids:
    """Decode the ids of a `StoredDocument`."""
    ids = _ids.get(encoded_ids)
    if ids is None:
        ids = msgspec.json.decode(encoded_ids, type=dict[str, str])
        _ids.keep(encoded_ids, ids, _BYTES_BY_CHARACTER * len(encoded_ids) + _DICT_BYTES)
    return ids


def ids_of(statements: Sequence[Any], ids: Ids) -> Ids:
    """Return the entries of `ids` whose names occur in these statements of a trust policy."""
    document = {"statements": statements}
    named = {*_accounts(document)}
    for statement in _with_ids(document, ids)["statements"]:
        named.update(statement["principals"])
    return {name: found for name, found in ids.items() if name in named}


def means_principal(encoded_ids: str, crn: str, principal_id: str) -> bool:
    """Return True if `crn` in a document means the principal with this id.

    `encoded_ids` are the ids of the document's names. A CRN without an id there means whichever
    principal has the CRN.
    """
    return read_ids(encoded_ids).get(crn, principal_id) == principal_id


def _with_lower_ids(statement: dict[str, Any]) -> dict[str, Any]:
    return {
        part: [*map(lower_ids, value)] if part in _NAMING else value
        for part, value in statement.items()
    }


def _accounts(document: dict[str, Any]) -> Iterator[str]:
    """Yield the handles and ids by which a document names accounts."""
    for statement in document["statements"]:
        for part in _NAMING:
            for text in statement.get(part, ()):
                word = _account(text, part)
                if word is not None:
                    yield word


def _account(text: str, part: str) -> str | None:
    """Return the handle or id of the account that a principal or resource pattern names, or None.

    `part` is ``principals`` or ``resources``.
    """
    if part == "principals" and not text.startswith("crn:"):
        return None if text == policies.EVERYONE else text
    parts = text.split(":", _CRN_PARTS - 1)
    if len(parts) < _CRN_PARTS or parts[-1].startswith(_OF_NO_ACCOUNT):
        return None
    word = parts[_ACCOUNT_PART]
    if part == "resources" and ("*" in word or "?" in word or not word or parse_uuid(word)):
        return None  # a wildcard is not a name
    return word


def _with_ids(document: dict[str, Any], ids: Ids) -> dict[str, Any]:
    """Return a document with `ids` in place of the account names."""
    statements = [
        {
            part: [_with_id(text, part, ids) for text in value] if part in _NAMING else value
            for part, value in statement.items()
        }
        for statement in document["statements"]
    ]
    return {**document, "statements": statements}


def _with_id(text: str, part: str, ids: Ids) -> str:
    word = _account(text, part)
    if word is None or word not in ids:
        return text
    if not text.startswith("crn:"):
        return ids[word]
    parts = text.split(":", _CRN_PARTS - 1)
    return ":".join([*parts[:_ACCOUNT_PART], ids[word], parts[-1]])


def _evaluated(document: dict[str, Any], ids: Ids, kind: PolicyKind | ResourceRules) -> Policy:
    """Return the policy of a document, with account names replaced by `ids`.

    Handles in resources that are not in `ids` match no account.
    """
    policy = policies.policy_of(_with_ids(document, ids), kind)
    statements = [
        each._replace(resources=Patterns(tuple(map(_without_handle, each.resources.texts))))
        for each in policy.statements
    ]
    return Policy(tuple(statements))


def _without_handle(pattern: str) -> str:
    """Return a resource pattern with `_NO_ACCOUNT` in place of an unknown handle."""
    word = _account(pattern, "resources")
    if word is None or not is_handle(word):
        return pattern
    return _with_id(pattern, "resources", {word: _NO_ACCOUNT})


def _foreign_principals(policy: Policy, account_id: str) -> list[Crn]:
    """Return the CRNs in a policy that name roles or service accounts of other accounts."""
    named = {name for each in policy.statements for name in each.principals}
    crns = [
        Crn.parse(name)
        for name in sorted(named)
        if name.startswith("crn:") and not name.startswith(policies.SERVICE)
    ]
    return [crn for crn in crns if crn.type in FIND_NAMED and crn.account != account_id]


def _principal_id_of(tx: Connection, crn: Crn) -> str:
    found = FIND_NAMED[crn.type](tx, crn.account, crn.name)
    return "" if found is None else found.id
