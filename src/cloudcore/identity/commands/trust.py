"""The trust policy of a role, which says who may assume it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudcore.command_failures import CommandFailure, RequestRefused
from cloudcore.command_line import Invocation, Option

KEEP_TRUST: Final = Option(
    "keep_trust",
    "leave the trust policy alone; by default it is made to admit who gets the role",
    "flag",
)


def admit(run: Invocation, crn: str) -> str:
    """Let the trust policy of the role admit a principal unless it does; return what to tell.

    Raises:
        CommandFailure: the caller may not change it, or it would be too large.

    """
    policy: Mapping[str, Any] = run.record["trust_policy"]
    if any(
        statement["effect"] == "allow" and {"*", crn} & set(statement["principals"])
        for statement in policy["statements"]
    ):
        return ""
    if run.values.get("keep_trust"):
        return ", but its trust policy does not admit them yet"
    statement = {"effect": "allow", "principals": [crn]}
    changed = {**policy, "statements": [*policy["statements"], statement]}
    try:
        run.client.call("PATCH", run.path, {"trust_policy": changed})
    except RequestRefused as error:
        raise CommandFailure(
            f"assigned, but of no use before the role's trust policy admits {crn}: {error}"
        ) from None
    return "; its trust policy admits them now"
