"""The policies of a service account or role: list, attach and detach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from litestar import post
from litestar.handlers import HTTPRouteHandler

from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import FormPage, FormRefusal
from registry.console.page_request import InjectedPage, PageRequest, PageResponse


class AttachedPolicies(NamedTuple):
    """The policies of a principal, as far as the role may list them."""

    attached: Sequence[dict[str, Any]] | None
    """None if the role may not list policies."""
    others: Sequence[str]
    """Names of policies that can be attached too: the first of them."""


async def read_policies(page: PageRequest, principal_id: str) -> AttachedPolicies:
    """Return the policies of a service account or role."""
    path = "/v1/policies"
    found = await unless_refused(page.api.get(path, attached_to=principal_id, limit=200))
    if found is None:
        return AttachedPolicies(None, ())
    attached = found["policies"]
    page.want_rights_on(*(each["crn"] for each in attached))
    every = (await page.api.get(path, limit=200))["policies"]
    ids = {each["id"] for each in attached}
    return AttachedPolicies(attached, [each["name"] for each in every if each["id"] not in ids])


def attachment_handlers(
    path: str, kind: Literal["role", "service_account"], principal: FormPage
) -> tuple[HTTPRouteHandler, HTTPRouteHandler]:
    """Return the handlers that attach a policy to a principal and detach it.

    `path` is that of the list of principals, and `principal` the page of one.
    """
    api = f"/v1/{kind.replace('_', '-')}s"

    @principal.form("/policies")
    async def attach(page: InjectedPage) -> PageResponse:
        name, principal_id = page.form.get("policy", "").strip(), page.parameters[kind]
        async for each in page.api.each("/v1/policies", "policies"):
            if each["name"] == name:
                attached = {kind: principal_id}
                await page.api.post(f"/v1/policies/{each['id']}/attachments", attached)
                return page.go(
                    f"{path}/{principal_id}", "The policy was attached, and holds at once."
                )
        return await principal.show(page, FormRefusal(404, f"there is no policy {name}."))

    @post(f"{principal.path}/policies/{{policy:str}}/detach")
    async def detach(page: InjectedPage) -> PageResponse:
        policy, principal_id = page.fill("/v1/policies/{policy}"), page.parameters[kind]
        if "confirmed" not in page.form:
            found = (await page.api.get(f"{api}/{principal_id}"))[kind]
            return await _ask(page, found, policy, f"{path}/{principal_id}")
        async for each in page.api.each(f"{policy}/attachments", "attachments"):
            if each[kind] is not None and each[kind]["id"] == principal_id:
                await page.api.change("DELETE", f"{policy}/attachments/{each['id']}")
                break
        return page.go(f"{path}/{principal_id}", "The policy was detached.")

    return attach, detach


async def _ask(
    page: PageRequest, principal: Mapping[str, Any], path: str, back: str
) -> PageResponse:
    """Ask whether to detach the policy at a path of ``/v1``."""
    policy = (await page.api.get(path))["policy"]
    for crn in (principal["crn"], policy["crn"]):
        await page.require("iam:DetachPolicy", crn)
    return page.show(
        "question.html",
        title=f"Detach {policy['name']} from {principal['name']}?",
        words="What only this policy allows is refused from then on. The policy stays.",
        button="Detach",
        back=back,
        is_own=page.acting.role_id == principal["id"],
    )


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

    Raise `Refused` if ``/v1`` does not let the role or the policy be created, or the policy
    attached.
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
    try:
        found = await page.api.get("/v1/policy-templates", names=",".join(names))
        documents = [
            each["document"] for each in found["policy_templates"] if each["name"] == template
        ]
        async for each in page.api.each("/v1/policies", "policies"):
            if each["document"] in documents:
                same[each["name"]] = str(each["id"])
    except Refused:
        return None
    return same.get(policy_name, next(iter(same.values()), None))
