"""Settings of an account for all its repositories: the undelete period, and which pulls count.

A pull by a scanner, a replication or a backup does not mean that an image is in use. So pulls by
principals whose CRNs match a pattern can be excluded from the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.identity.rows.accounts import find_account
from cloudcore.resource_names import lower_ids, parse_uuid
from registry.metadata import settings
from registry.metadata.settings import AccountSettings

_DEFAULTS: Final = AccountSettings()._asdict()
_FIELD: Final = "uncounted_pullers"
_PATTERN: Final = re.compile(r"\*|crn:iam::([a-z0-9*?-]{1,36}):([!-~]{1,512})")


def update_settings(
    tx: Connection, account_id: str, changes: Mapping[str, Any], now: int
) -> AccountSettings:
    """Apply `changes` to the settings of an account, and return the settings.

    None resets a setting to its default. A new undelete period applies to later deletions only.
    Raise `InvalidInput`, with ``field`` and ``reason``, if a pattern is not allowed.
    """
    found = settings.lock_settings(tx, account_id, now)
    new = {name: _DEFAULTS[name] if value is None else value for name, value in changes.items()}
    if _FIELD in new:
        new[_FIELD] = _with_ids(tx, account_id, new[_FIELD])
    return settings.put_settings(tx, account_id, found._replace(**new), now)


def counts_pulls_of(
    principal: str, uncounted_pullers: Sequence[str], work: StepBudget | None = None
) -> bool:
    """Return True if pulls by the principal with this CRN count; "" is an unauthenticated client.

    Raise `TooCostly` if the patterns need more steps than `work` has left.
    """
    return not uncounted_pullers or not _compiled(tuple(uncounted_pullers)).match(principal, work)


def _with_ids(tx: Connection, account_id: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns with the account's handle replaced by its id, as in CRNs.

    All other handles get the same refusal, so that it does not reveal which accounts exist.
    """
    account = find_account(tx, account_id)
    patterns = [*map(lower_ids, patterns)]
    kept = []
    for index, pattern in enumerate(patterns):
        handle = _account(pattern, index)
        if handle and (account is None or handle != account.handle):
            words = "name another account by its id, or by a pattern"
            raise _refusal(index, words, "foreign_account")
        kept.append(pattern.replace(f"::{handle}:", f"::{account_id}:", 1) if handle else pattern)
    return tuple(kept)


def _account(pattern: str, index: int) -> str:
    """Return the account handle in a pattern; empty if the account is an id or a wildcard."""
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        form = "* or a pattern of principals: crn:iam::<account>:<type>/<name>"
        raise _refusal(index, form, "malformed")
    account = found[1] or ""
    return "" if parse_uuid(account) or "*" in account or "?" in account else account


def _refusal(index: int, words: str, reason: str) -> InvalidInput:
    field = f"{_FIELD}[{index}]"
    return InvalidInput(f"{field}: {words}", field=field, reason=reason)


@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(patterns)
