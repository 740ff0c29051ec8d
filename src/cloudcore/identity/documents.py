"""Policy documents as they are stored: parsed once to be sure, accounts named by id (C4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from cloudcore.crn import lower_ids
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.identity.policy import EVERYONE, Kind, Policy, check_size, policy_of
from cloudcore.identity.rows.accounts import find_account_ids
from cloudcore.uuids import parse_uuid

_NAMING: Final = ("principals", "resources")
"""Parts of a statement in which accounts are named."""
_CRN_PARTS: Final = 5
_ACCOUNT_PART: Final = 3
_OF_ORGANIZATIONS: Final = ("user/", "organization/")


def stored_document(tx: Connection, document: Any, kind: Kind) -> tuple[str, Policy]:  # noqa: ANN401
    """Return a parsed JSON document in the form that is kept, and the policy it makes.

    Handles become ids, so who registers a handle later gains nothing, and a statement about an
    account by its handle speaks of its resources as those are named.

    Raises:
        InvalidInput: it is no policy of this kind, or names an account that does not exist.

    """
    policy_of(document, kind)
    document = {**document, "statements": [*map(_with_lower_ids, document["statements"])]}
    named = {word: where for where, word in _accounts(document)}
    ids = find_account_ids(tx, list(named))
    for word, where in named.items():
        if word not in ids:
            raise InvalidInput(f"{where}: no such account", field=where, reason="no_such_account")
    statements = [
        {
            part: [_with_id(text, part, ids) for text in value] if part in _NAMING else value
            for part, value in statement.items()
        }
        for statement in document["statements"]
    ]
    stored = {**document, "statements": statements}
    encoded = msgspec.json.encode(stored)
    check_size(encoded)
    return encoded.decode(), policy_of(stored, kind)


def _with_lower_ids(statement: dict[str, Any]) -> dict[str, Any]:
    return {
        part: [*map(lower_ids, value)] if part in _NAMING else value
        for part, value in statement.items()
    }


def _accounts(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where an account is named, and by which word."""
    for index, statement in enumerate(document["statements"]):
        for part in _NAMING:
            for text in statement.get(part, ()):
                word = _account(text, part)
                if word is not None:
                    yield f"statements[{index}].{part}", word


def _account(text: str, part: str) -> str | None:
    """Return the account that a principal or a pattern of resources names, if it names one."""
    if part == "principals" and not text.startswith("crn:"):
        return None if text == EVERYONE else text
    parts = text.split(":", _CRN_PARTS - 1)
    if len(parts) < _CRN_PARTS or parts[-1].startswith(_OF_ORGANIZATIONS):
        return None
    word = parts[_ACCOUNT_PART]
    if part == "resources" and ("*" in word or "?" in word or not word or parse_uuid(word)):
        return None  # what a pattern leaves open stays open
    return word


def _with_id(text: str, part: str, ids: dict[str, str]) -> str:
    word = _account(text, part)
    if word is None:
        return text
    if not text.startswith("crn:"):
        return ids[word]
    parts = text.split(":", _CRN_PARTS - 1)
    return ":".join([*parts[:_ACCOUNT_PART], ids[word], parts[-1]])
