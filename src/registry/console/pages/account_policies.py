"""The policies of the account: list, create from a template or a document, edit and delete."""

from __future__ import annotations

from typing import Any, Final

from litestar import get, post

from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.policy_documents import (
    complaint_about,
    parse_document,
    written_document,
)
from registry.console.pages.policy_vocabulary import FIND, read_vocabulary
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import POLICIES

_API: Final = "/v1/policies"
_ONE: Final = f"{POLICIES}/{{policy:str}}"
_PAGE: Final = 50


@get(POLICIES)
async def list_account_policies(page: InjectedPage) -> PageResponse:
    """List the policies by name."""
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    return page.show("account_policies.html", policies=found["policies"], meta=found["meta"])


@get(f"{POLICIES}/new")
async def begin_policy(page: InjectedPage) -> PageResponse:
    """Show an empty editor, and the form for a ready-made policy."""
    await page.require_some("iam:CreatePolicy")
    return await _new(page)


@post(f"{POLICIES}/new")
async def create_policy(page: InjectedPage) -> PageResponse:
    """Create a policy from a template or a document; with ``search`` in the form, only search."""
    form = page.form
    if "search" in form:
        return await _new(page)
    body: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "description": form.get("description", "").strip(),
    }
    written = form.get("document", "")
    try:
        if form.get("template"):
            names = form.get("names", "").replace(",", " ").split()
            body["template"] = {"name": form["template"], "names": names}
        else:
            body["document"] = parse_document(written)
        made = await page.api.post(_API, body)
    except ValueError as error:
        return await _new(page, Complaint(400, str(error), "document"))
    except Refused as error:
        return await _new(page, complaint_about(error, written))
    return page.go(f"{POLICIES}/{made['policy']['id']}", "policy-created")


@get(_ONE)
async def show_account_policy(page: InjectedPage) -> PageResponse:
    """Show a policy in the editor, and what it is attached to."""
    return await _show(page)


@post(_ONE)
async def save_account_policy(page: InjectedPage) -> PageResponse:
    """Change the policy; with ``search`` in the form, only search the list beside it."""
    form = page.form
    if "search" in form:
        return await _show(page)
    written = form.get("document", "")
    description = form.get("description", "").strip()
    try:
        changes = {"document": parse_document(written), "description": description}
        await page.api.change("PATCH", _api(page), changes)
    except ValueError as error:
        return await _show(page, Complaint(400, str(error), "document"))
    except Refused as error:
        return await _show(page, complaint_about(error, written))
    return page.go(f"{POLICIES}/{page.parameters['policy']}", "policy-saved")


@post(f"{_ONE}/delete")
async def delete_account_policy(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the policy; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        policy = (await page.api.get(_api(page)))["policy"]
        await page.require("iam:DeletePolicy", policy["crn"])
        return page.show("account_policy_deletion.html", policy=policy)
    try:
        await page.api.change("DELETE", _api(page))
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(POLICIES, "policy-deleted")


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters['policy']}"


async def _new(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    acting = page.session.acting
    assert acting is not None, "the route admits only who acts in a role"
    region = page.console.settings.region
    example = {
        "version": "1",
        "statements": [
            {
                "effect": "allow",
                "actions": ["registry:PullImage"],
                "resources": [f"crn:registry:{region}:{acting.account}:repository/web/*"],
            }
        ],
    }
    return page.show(
        "account_policy_creation.html",
        complaint.status,
        templates=(await page.api.get("/v1/policy-templates"))["policy_templates"],
        vocabulary=await read_vocabulary(page),
        find_field=FIND,
        written=page.form.get("document", written_document(example)),
        complaint=complaint,
    )


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    policy = (await page.api.get(_api(page)))["policy"]
    page.asks_about(policy["crn"])
    path = f"{_api(page)}/attachments"
    found = await unless_refused(page.api.get(path, marker=page.query.get("marker"), limit=_PAGE))
    return page.show(
        "account_policy.html",
        complaint.status,
        policy=policy,
        attachments=found,
        vocabulary=await read_vocabulary(page),
        find_field=FIND,
        description=page.form.get("description", policy["description"]),
        written=page.form.get("document", written_document(policy["document"])),
        complaint=complaint,
    )


HANDLERS: Final = (
    list_account_policies,
    begin_policy,
    create_policy,
    show_account_policy,
    save_account_policy,
    delete_account_policy,
)
