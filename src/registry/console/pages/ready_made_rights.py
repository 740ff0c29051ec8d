"""Ready-made rights of a new role: a policy of a template, created and attached with the role."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from registry.console.control_plane import Refused
from registry.console.page_request import PageRequest


async def read_templates(page: PageRequest) -> Sequence[dict[str, Any]]:
    """Return the templates that a form can choose among."""
    found: Sequence[dict[str, Any]] = (await page.api.get("/v1/policy-templates"))[
        "policy_templates"
    ]
    return found


async def create_with_rights(page: PageRequest, body: dict[str, Any]) -> str:
    """Create a role, with the policy that a form chooses if it chooses one; return the role's id.

    What was created is deleted again if the rest is refused, as far as the session may.

    Raises:
        Refused: ``/v1`` does not let the role or the policy be created, or the policy attached.

    """
    role = (await page.api.post("/v1/roles", body))["role"]
    role_id, template = str(role["id"]), page.form.get("template", "")
    if not template:
        return role_id
    names = page.form.get("names", "").replace(",", " ").split()
    wanted = {
        "name": f"{role['name']}-{template}",
        "description": f"For the role {role['name']}.",
        "template": {"name": template, "names": names},
    }
    made = [f"/v1/roles/{role_id}"]
    try:
        policy = (await page.api.post("/v1/policies", wanted))["policy"]
        made.append(f"/v1/policies/{policy['id']}")
        await page.api.post(f"{made[-1]}/attachments", {"role": role_id})
    except Refused:
        for path in reversed(made):
            with suppress(Refused):
                await page.api.change("DELETE", path)
        raise
    return role_id
