"""Let the trust policy of a role admit a person, or the people of an identity provider."""

from __future__ import annotations

from registry.console.page_request import PageRequest


async def admit(page: PageRequest, role_id: str, crn: str) -> None:
    """Let the trust policy of a role admit a principal, unless it does.

    Raises:
        Refused: ``/v1`` does not let the trust policy be changed.

    """
    path = f"/v1/roles/{role_id}"
    policy = (await page.api.get(path))["role"]["trust_policy"]
    statements = policy["statements"]
    if not any(each["effect"] == "allow" and crn in each["principals"] for each in statements):
        added = {"effect": "allow", "principals": [crn]}
        changed = {**policy, "statements": [*statements, added]}
        await page.api.change("PATCH", path, {"trust_policy": changed})
