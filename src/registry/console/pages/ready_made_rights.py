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

    A policy of the account that says the same is attached instead of a new one.
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
        policy_id = await _find_same(page, template, names, str(wanted["name"]))
        if policy_id is None:
            policy_id = (await page.api.post("/v1/policies", wanted))["policy"]["id"]
            made.append(f"/v1/policies/{policy_id}")
        await page.api.post(f"/v1/policies/{policy_id}/attachments", {"role": role_id})
    except Refused:
        for path in reversed(made):
            with suppress(Refused):
                await page.api.change("DELETE", path)
        raise
    return role_id


async def _find_same(
    page: PageRequest, template: str, names: Sequence[str], policy_name: str
) -> str | None:
    """Return the id of a policy with the document of a template, best one of this name, or None.

    None also if the session may not read them, or the template or a name is wrong: then the
    creation says so.
    """
    if not names:  # without any, the templates are filled for all names
        return None
    same: dict[str, str] = {}
    marker = None
    try:
        found = await page.api.get("/v1/policy-templates", names=",".join(names))
        documents = [
            each["document"] for each in found["policy_templates"] if each["name"] == template
        ]
        while True:
            listed = await page.api.get("/v1/policies", limit=200, marker=marker)
            for each in listed["policies"]:
                if each["document"] in documents:
                    same[each["name"]] = str(each["id"])
            marker = listed["meta"].get("marker")
            if marker is None:
                break
    except Refused:
        return None
    return same.get(policy_name, next(iter(same.values()), None))
