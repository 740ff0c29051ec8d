"""The policies of the account: list, create, edit, attach, delete and simulate them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from cloudcore.commands.records import indented
from registry.console.addresses import POLICIES, SIMULATOR
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, WrongInput, refusal_of
from registry.console.page_request import InjectedPage, PageRequest, PageResponse


def parse_document(written: str, field: str = "document") -> dict[str, Any]:
    """Parse the JSON object in a form field; raise `WrongInput` if it is not one."""
    try:
        found: dict[str, Any] = msgspec.json.decode(written, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise WrongInput(field, f"The document is no JSON object: {error}.") from None
    return found


FIND: Final = "find"
"""Name of the query parameter, and form field, with the words to search for."""


class PolicyVocabulary(NamedTuple):
    """Actions and resource types that match a search, and all conditions and principals."""

    actions: Sequence[dict[str, Any]]
    resources: Sequence[dict[str, Any]]
    conditions: Sequence[dict[str, Any]]
    principals: Sequence[dict[str, Any]]
    find: str


async def read_vocabulary(page: PageRequest) -> PolicyVocabulary:
    """Return the actions and resources that match the page's search."""
    find = (page.form.get(FIND) or page.query.get(FIND, "")).strip()
    found = await page.api.get("/v1/actions")
    actions = [each for each in found["actions"] if matches(find, each["name"], each["summary"])]
    kinds = {each["resource"] for each in actions}
    resources = [each for each in found["resources"] if not find or each["crn"] in kinds]
    return PolicyVocabulary(actions, resources, found["conditions"], found["principals"], find)


def matches(find: str, *texts: str) -> bool:
    """Return True if the texts together contain each word of `find`, ignoring case."""
    whole = " ".join(texts).lower()
    return all(word in whole for word in find.lower().split())


_API: Final = "/v1/policies"
_ONE: Final = f"{POLICIES}/{{policy:str}}"
_ONE_API: Final = f"{_API}/{{policy}}"
_PAGE: Final = 50


async def _new(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    """Return the editor with an empty policy, and the form for a policy from a template."""
    region = page.console.settings.region
    example = {
        "version": "1",
        "statements": [
            {
                "effect": "allow",
                "actions": ["registry:PullImage"],
                "resources": [f"crn:registry:{region}:{page.acting.account}:repository/web/*"],
            }
        ],
    }
    return page.show(
        "account_policy_creation.html",
        templates=(await page.api.get("/v1/policy-templates"))["policy_templates"],
        vocabulary=await read_vocabulary(page),
        find_field=FIND,
        written=page.form.get("document", indented(example)),
        refusal=refusal,
    )


async def _show(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    """Return a policy in the editor, and its attachments."""
    policy = (await page.api.get(page.fill(_ONE_API)))["policy"]
    revision = str(policy["revision"])
    page.want_rights_on(policy["crn"])
    path = f"{page.fill(_ONE_API)}/attachments"
    found = await unless_refused(page.api.get(path, marker=page.marker, limit=_PAGE))
    return page.show(
        "account_policy.html",
        policy=policy,
        attachments=found,
        vocabulary=await read_vocabulary(page),
        find_field=FIND,
        description=page.form.get("description", policy["description"]),
        written=page.form.get("document", indented(policy["document"])),
        saved=indented(policy["document"]) if refusal.is_outdated else "",
        revision=revision if refusal.is_outdated else page.form.get("revision", revision),
        refusal=refusal,
    )


_NEW: Final = FormPage(f"{POLICIES}/new", _new, document="document")
_POLICY: Final = FormPage(_ONE, _show, document="document")
show_account_policy = _POLICY.get()


@get(POLICIES)
async def list_account_policies(page: InjectedPage) -> PageResponse:
    """List the policies by name."""
    found = await page.api.get(_API, marker=page.marker, limit=_PAGE)
    return page.show("account_policies.html", policies=found["policies"], meta=found["meta"])


@get(_NEW.path)
async def begin_policy(page: InjectedPage) -> PageResponse:
    """Show the form of a new policy; refuse if the role may not create policies."""
    await page.require_some("iam:CreatePolicy")
    return await _new(page)


@_NEW.form()
async def create_policy(page: InjectedPage) -> PageResponse:
    """Create a policy from a template or a document; with ``search`` in the form, only search."""
    if "search" in page.form:
        return await _new(page)
    body: dict[str, Any] = {
        "name": page.text("name"),
        "description": page.text("description"),
    }
    if template := page.form.get("template"):
        body["template"] = {"name": template, "names": page.words("names")}
    else:
        body["document"] = parse_document(page.form.get("document", ""))
    made = await page.api.post(_API, body)
    return page.go(
        f"{POLICIES}/{made['policy']['id']}",
        "The policy was created. Service accounts and roles can have it now.",
    )


@_POLICY.form()
async def save_account_policy(page: InjectedPage) -> PageResponse:
    """Change the policy; with ``search`` in the form, only search the list beside it."""
    form = page.form
    if "search" in form:
        return await _show(page)
    document = parse_document(form.get("document", ""))
    changes = {"document": document, "description": page.text("description")}
    await page.api.change("PATCH", page.fill(_ONE_API), changes, revision=form.get("revision"))
    return page.go(page.fill(_ONE), "The policy was saved.")


@post(f"{_ONE}/delete")
async def delete_account_policy(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the policy; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        policy = (await page.api.get(page.fill(_ONE_API)))["policy"]
        await page.require("iam:DeletePolicy", policy["crn"])
        return page.show("account_policy_deletion.html", policy=policy)
    try:
        await page.api.change("DELETE", page.fill(_ONE_API))
    except Refused as error:
        return await _show(page, refusal_of(error))
    return page.go(POLICIES, "The policy was deleted.")


_ACTIONS: Final = ("registry:PullImage", "registry:PushImage")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_REPOSITORY: Final = re.compile(r"[a-z0-9][a-z0-9._/-]*")
_DECISIONS: Final = {
    "allowed": "Yes",
    "denied": "No, denied",
    "implicitly_denied": "No, nothing allows it",
    "unknown": "Unknown",
}


@get(SIMULATOR)
async def show_simulator(page: InjectedPage) -> PageResponse:
    """Show the form; with a principal and a resource in the query, the decisions too."""
    asked = {
        "principal": page.query.get("principal", "").strip(),
        "actions": page.query.get("actions", " ".join(_ACTIONS)),
        "resource": page.query.get("resource", "").strip(),
        "source_ip": page.query.get("source_ip", "").strip(),
    }
    refusal, simulation = NO_REFUSAL, None
    if asked["principal"] and asked["resource"]:
        try:
            answer = await page.api.post("/v1/policy-simulations", _question(page, asked))
            simulation = answer["simulation"]
        except Refused as error:
            refusal = refusal_of(error)
    return page.show(
        "simulator.html",
        asked=asked,
        refusal=refusal,
        simulation=simulation,
        decisions=_DECISIONS,
        known_actions=(await page.api.get("/v1/actions"))["actions"],
    )


def _question(page: PageRequest, asked: dict[str, str]) -> dict[str, Any]:
    region = page.console.settings.region
    body: dict[str, Any] = {
        "principal": principal_of(asked["principal"], page.acting.account),
        "actions": asked["actions"].replace(",", " ").split(),
        "resource": resource_of(asked["resource"], page.acting.account, region),
    }
    if asked["source_ip"]:
        body["source_ip"] = asked["source_ip"]
    return body


def principal_of(written: str, account: str) -> str:
    """Return the CRN of a principal written as a name; other text is returned unchanged.

    A name is ``role/NAME``, ``service-account/NAME``, or just the name of a service account.
    """
    kind, _, name = written.rpartition("/")
    if kind in ("", "role", "service-account") and _NAME.fullmatch(name):
        return f"crn:iam::{account}:{kind or 'service-account'}/{name}"
    return written


def resource_of(written: str, account: str, region: str) -> str:
    """Return the CRN of a repository written as a name; other text is returned unchanged."""
    if _REPOSITORY.fullmatch(written):
        return f"crn:registry:{region}:{account}:repository/{written}"
    return written


class AttachedPolicies(NamedTuple):
    """A principal's policies, and others that can be attached."""

    attached: Sequence[dict[str, Any]] | None
    """None if the role may not list policies."""
    others: Sequence[str]
    """Names of policies that are not attached, from the first 200 of the account."""


async def read_policies(page: PageRequest, principal_id: str) -> AttachedPolicies:
    """Read the policies of a service account or role, and the names of others."""
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

    `path` is the path of the list of principals, and `principal` the page of one principal.
    """
    api = f"/v1/{kind.replace('_', '-')}s"

    @principal.form("/policies")
    async def attach(page: InjectedPage) -> PageResponse:
        name, principal_id = page.text("policy"), page.parameters[kind]
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
            return await _ask_to_detach(page, found, policy, f"{path}/{principal_id}")
        async for each in page.api.each(f"{policy}/attachments", "attachments"):
            if each[kind] is not None and each[kind]["id"] == principal_id:
                await page.api.change("DELETE", f"{policy}/attachments/{each['id']}")
                break
        return page.go(f"{path}/{principal_id}", "The policy was detached.")

    return attach, detach


async def _ask_to_detach(
    page: PageRequest, principal: Mapping[str, Any], path: str, back: str
) -> PageResponse:
    """Return the page that asks whether to detach a policy; `path` is the policy's on ``/v1``."""
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
    """Read the policy templates that a form offers."""
    found: Sequence[dict[str, Any]] = (await page.api.get("/v1/policy-templates"))[
        "policy_templates"
    ]
    return found


async def create_with_rights(page: PageRequest, body: dict[str, Any]) -> str:
    """Create a role, with the policy that the form chooses, if any; return the role's id.

    If the account has a policy with the same document, that policy is attached instead of a new
    one. If a later step is refused, role and policy are deleted again, if the session may do so.

    Raise `Refused` if ``/v1`` does not let the role or the policy be created, or the policy
    attached.
    """
    role = (await page.api.post("/v1/roles", body))["role"]
    role_id, template = str(role["id"]), page.form.get("template", "")
    if not template:
        return role_id
    names = page.words("names")
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
    """Return the id of a policy with the template's document, if possible named `policy_name`.

    Return None if there is none, the session may not read policies, or the template or a name is
    wrong: creating the policy then reports the error.
    """
    if not names:  # without names, /v1 fills the templates for all names
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
