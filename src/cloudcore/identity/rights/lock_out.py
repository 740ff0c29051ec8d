"""Refuse a change by which its caller loses the right to grant rights, unless it is forced.

A principal that may attach policies to itself can restore every other right. So only this right is
checked: when the request arrives, and again in the transaction of the change, with the policies,
the session and the access key as they are after the change. Changes of rights lock the account, so
of two concurrent changes the second sees the result of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.iam.decision import Caller, Question, decide
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Principal
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rights.permissions import load_policies
from cloudcore.identity.rows.service_accounts import find_key_owner_by_id
from cloudcore.identity.rows.sessions import find_live_session
from cloudcore.web.context import ChangeCheck, RequestContext

_ATTACH: Final = "iam:AttachPolicy"


class ForceQuery(msgspec.Struct):
    """The query option of changes that may take rights from the caller itself."""

    force: bool = False
    """Make the change even if it takes `iam:AttachPolicy` from the caller itself, or ends the
    caller's session or access key. Otherwise the answer is 409 with the reason `own_rights`."""


def check_lock_out(ctx: RequestContext) -> ChangeCheck | None:
    """Return the check for a change, or None if the change is forced, or no right could be lost.

    Call the check at the end of the change's transaction. It raises `Conflict` if the caller could
    attach policies to itself, or all policies of its account, before the change but not after it,
    or if the caller's session or access key has ended.

    Raise `InvalidInput` if the query is malformed.
    """
    caller, now = ctx.caller, ctx.clock()
    if ctx.query(ForceQuery).force or caller is None or caller.account_id is None:
        return None

    def allows(policies: Sequence[Policy], crn: str) -> bool:
        question = Question(
            caller=Caller(caller.crn, caller.account_id),
            action=_ATTACH,
            resource=crn,
            resource_account_id=caller.account_id or "",
            source_ip=ctx.source_ip,
            now=now,
        )
        return decide(question, policies).is_allowed

    every_policy = iam_crn(caller.account_id, "policy", "*")
    held = [crn for crn in (caller.crn, every_policy) if allows(ctx.policies, crn)]

    def check(tx: Connection) -> None:
        if not _is_in_force(tx, caller, now):
            raise _refusal(caller, held, "end your own session, and with it take from you")
        policies = load_policies(tx, caller)
        lost = [crn for crn in held if not allows(policies, crn)]
        if lost:
            raise _refusal(caller, lost, "take from you")

    return check if held else None


CHECKED: Final[dict[str, Any]] = {
    "query": ForceQuery,
    "change_check": check_lock_out,
    "statuses": (409,),
}
"""Part of the ``opt`` of routes whose changes may take rights from the caller itself."""


def _is_in_force(tx: Connection, caller: Principal, now: int) -> bool:
    """Return True if the caller's session or access key is still valid."""
    if caller.sid is not None:
        return find_live_session(tx, caller.sid, now) is not None
    if caller.access_key_id is None:
        return True
    key = find_key_owner_by_id(tx, caller.access_key_id)
    return key is not None and key.is_in_force(now)


def _refusal(caller: Principal, lost: Sequence[str], words: str) -> Conflict:
    return Conflict(
        f"this would {words}, {caller.crn}, the right to {_ATTACH} on {' and '.join(lost)}, so you"
        " could not undo it; use force if you intend that (?force=true, --force)",
        reason="own_rights",
        actions=[_ATTACH],
        resources=list(lost),
    )
