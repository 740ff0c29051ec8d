"""The trust policy of a role, which says who may assume it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from registry.cli.api import ApiClient
from registry.cli.failure import CommandFailure
from registry.cli.transport import RequestRefused


def is_trusted(policy: Mapping[str, Any], crn: str) -> bool:
    """Return True if a trust policy allows a principal by its CRN, or everyone."""
    return any(
        statement["effect"] == "allow" and {"*", crn} & set(statement["principals"])
        for statement in policy["statements"]
    )


def admit(client: ApiClient, path: str, policy: Mapping[str, Any], crn: str) -> None:
    """Let the trust policy of the role at a path admit a principal too.

    Raises:
        CommandFailure: the caller may not change it, or it would be too large.

    """
    statement = {"effect": "allow", "principals": [crn]}
    changed = {**policy, "statements": [*policy["statements"], statement]}
    try:
        client.call("PATCH", path, {"trust_policy": changed})
    except RequestRefused as error:
        raise CommandFailure(
            f"assigned, but of no use before the role's trust policy admits {crn}: {error}"
        ) from None
