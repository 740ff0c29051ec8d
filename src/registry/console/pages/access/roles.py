"""The roles of the account: trust policy, policies, session length, people and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from litestar import post

from cloudcore.commands.records import indented
from registry.console.addresses import ACCOUNT_ROLES
from registry.console.admission import Requires
from registry.console.browser_request import is_whole_number
from registry.console.control_plane import unless_refused
from registry.console.form_refusals import NO_REFUSAL, OUTDATED, FormPage, FormRefusal, WrongInput
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.access.policies import (
    attachment_handlers,
    create_with_rights,
    parse_document,
    read_policies,
    read_templates,
)


async def trust_principal(page: PageRequest, role_id: str, crn: str) -> None:
    """Add a principal to a role's trust policy, unless it is admitted already.

    Raise `Refused` if ``/v1`` does not let the trust policy be changed.
    """
    path = f"/v1/roles/{role_id}"
    policy = (await page.api.get(path))["role"]["trust_policy"]
    statements = policy["statements"]
    if not any(each["effect"] == "allow" and crn in each["principals"] for each in statements):
        added = {"effect": "allow", "principals": [crn]}
        changed = {**policy, "statements": [*statements, added]}
        await page.api.change("PATCH", path, {"trust_policy": changed})


_MOST = 200
"""More groups than a role can have, and more providers than an organization can have."""


class RoleGroups(NamedTuple):
    """A role's groups, and the identity providers to choose from."""

    assigned: Sequence[dict[str, Any]] | None
    """The groups; None if the role of the session may not list them."""
    providers: Sequence[dict[str, Any]] | None
    """The providers that can be chosen; None if the person does not own the organization."""

    def name_of(self, provider_id: str) -> str:
        """Return a provider's name, or its id if the person may not see the name."""
        names = {each["id"]: str(each["name"]) for each in self.providers or ()}
        return names.get(provider_id, provider_id)


async def read_groups(page: PageRequest, role_id: str) -> RoleGroups:
    """Read the groups of a role, and the identity providers of the account's organization."""
    found = await unless_refused(page.api.get(_groups_api(role_id), limit=_MOST))
    assigned = None if found is None else found["group_assignments"]
    return RoleGroups(assigned, await unless_refused(_providers(page)))


async def assign_group(page: PageRequest, role_id: str) -> None:
    """Assign a role to the group that a form names.

    With ``trust`` in the form, the role's trust policy then admits all people of the provider.

    Raise `Refused` if ``/v1`` does not let the role be assigned, or the trust policy be changed.
    """
    body = {
        "identity_provider": page.text("identity_provider"),
        "group": page.text("group"),
    }
    made = (await page.api.post(_groups_api(role_id), body))["group_assignment"]
    if "trust" in page.form:
        for each in await _providers(page):
            if each["id"] == made["identity_provider"]:
                await trust_principal(page, role_id, each["crn"])


def _groups_api(role_id: str) -> str:
    return f"/v1/roles/{role_id}/group-assignments"


async def _providers(page: PageRequest) -> Sequence[dict[str, Any]]:
    account = (await page.person.get(f"/v1/accounts/{page.acting.account_id}"))["account"]
    if account["organization"] is None:
        return ()
    path = f"/v1/organizations/{account['organization']['id']}/identity-providers"
    found: Sequence[dict[str, Any]] = (await page.person.get(path, limit=_MOST))[
        "identity_providers"
    ]
    return found


_API: Final = "/v1/roles"
_ONE: Final = f"{ACCOUNT_ROLES}/{{role:str}}"
_ONE_API: Final = f"{_API}/{{role}}"
_KIND: Final = "role"
_PERSON_IN_ROLE: Final = {"requires": Requires.PERSON_IN_ROLE}
"""For routes that may show a role's page, where owners choose an identity provider."""
_PAGE: Final = 50


def _fields(page: PageRequest) -> dict[str, Any]:
    """Return the form fields of a role that can change.

    Raise `WrongInput` if the trust policy is not a JSON object, or the session length no number.
    """
    seconds = page.text("seconds")
    if not is_whole_number(seconds, 6):
        words = "The longest session is a number of seconds, from 3600 to 43200."
        raise WrongInput("trust_policy", words)
    return {
        "description": page.text("description"),
        "max_session_seconds": int(seconds),
        "trust_policy": parse_document(page.form.get("trust_policy", ""), "trust_policy"),
    }


async def _list(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    found = await page.api.get(_API, marker=page.marker, limit=_PAGE)
    # The example trusts the account: its people and programs need a policy to assume the role.
    account, actions = page.acting.account, ["iam:AssumeRole"]
    statement = {"effect": "allow", "principals": [account], "actions": actions}
    example = {"version": "1", "statements": [statement]}
    return page.show(
        "account_roles.html",
        roles=found["roles"],
        meta=found["meta"],
        templates=await read_templates(page),
        written=page.form.get("trust_policy", indented(example)),
        refusal=refusal,
    )


async def _show(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    role = (await page.api.get(page.fill(_ONE_API)))["role"]
    page.want_rights_on(role["crn"])
    path = f"{page.fill(_ONE_API)}/assignments"
    assigned = await unless_refused(page.api.get(path, marker=page.marker, limit=_PAGE))
    form = page.form
    return page.show(
        "account_role.html",
        role=role,
        base=page.fill(_ONE),
        assigned=assigned,
        groups=await read_groups(page, role["id"]),
        policies=await read_policies(page, role["id"]),
        written=form.get("trust_policy", indented(role["trust_policy"])),
        saved=indented(role["trust_policy"]) if refusal.is_outdated else "",
        drawn=role["updated_at"] if refusal.is_outdated else form.get("drawn", role["updated_at"]),
        refusal=refusal,
    )


_LIST: Final = FormPage(ACCOUNT_ROLES, _list, document="trust_policy")
_ROLE: Final = FormPage(_ONE, _show, _PERSON_IN_ROLE, "trust_policy")
list_account_roles, show_role = _LIST.get(), _ROLE.get()


@_LIST.form()
async def create_role(page: InjectedPage) -> PageResponse:
    """Create a role, with a policy from a template if the form names one."""
    body = {"name": page.text("name"), **_fields(page)}
    role_id = await create_with_rights(page, body)
    return page.go(f"{ACCOUNT_ROLES}/{role_id}", "The role was saved.")


@_ROLE.form()
async def save_role(page: InjectedPage) -> PageResponse:
    """Change the description, the trust policy and the session length."""
    changes, drawn = _fields(page), page.form.get("drawn")
    # /v1 has no conditional change of roles, so a change between these two calls is missed.
    if drawn and (await page.api.get(page.fill(_ONE_API)))["role"]["updated_at"] != drawn:
        return await _show(page, FormRefusal(409, OUTDATED))
    await page.api.change("PATCH", page.fill(_ONE_API), changes)
    return page.go(page.fill(_ONE), "The role was saved.")


@_ROLE.form("/assignments")
async def assign_role(page: InjectedPage) -> PageResponse:
    """Assign the role to a member of the organization.

    With ``trust`` in the form, the role's trust policy then admits the person.
    """
    body = {"user": page.text("user")}
    made = (await page.api.post(f"{page.fill(_ONE_API)}/assignments", body))["assignment"]
    if "trust" in page.form:
        await trust_principal(page, page.parameters[_KIND], made["user"]["crn"])
    return page.go(page.fill(_ONE), "The role was assigned.")


@post(f"{_ONE}/assignments/{{user:str}}/delete")
async def unassign_role(page: InjectedPage) -> PageResponse:
    """Ask whether to take the role from a person; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        words = "The sessions in which the person has assumed it end at once."
        is_self = page.parameters["user"] == page.session.user_id
        return await _ask_to_unassign(page, "a person", words, is_self=is_self)
    await page.api.change("DELETE", page.fill(f"{_ONE_API}/assignments/{{user}}"))
    return page.go(page.fill(_ONE), "The role was taken away.")


@_ROLE.form("/groups")
async def assign_role_to_group(page: InjectedPage) -> PageResponse:
    """Assign the role to a group of an identity provider."""
    await assign_group(page, page.parameters[_KIND])
    return page.go(
        page.fill(_ONE), "The group has the role: its people from their next sign-in on."
    )


@post(f"{_ONE}/groups/{{assignment:str}}/delete")
async def unassign_role_from_group(page: InjectedPage) -> PageResponse:
    """Ask whether to take the role from a group; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        words = (
            "People who have it by this group alone lose it, and their sessions of it end at once."
        )
        return await _ask_to_unassign(page, "a group", words, is_self=True)
    await page.api.change("DELETE", page.fill(f"{_ONE_API}/group-assignments/{{assignment}}"))
    return page.go(page.fill(_ONE), "The role was taken from the group.")


@post(f"{_ONE}/delete")
async def delete_role(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the role; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        role = (await page.api.get(page.fill(_ONE_API)))["role"]
        await page.require("iam:DeleteRole", role["crn"])
        return page.show("account_role_deletion.html", role=role)
    await page.api.change("DELETE", page.fill(_ONE_API))
    return page.go(ACCOUNT_ROLES, "The role was deleted. Its sessions have ended.")


async def _ask_to_unassign(
    page: PageRequest, whom: str, words: str, *, is_self: bool
) -> PageResponse:
    """Return the page that asks whether to take the role away.

    With `is_self`, the page warns a person who acts in this role.
    """
    role = (await page.api.get(page.fill(_ONE_API)))["role"]
    await page.require("iam:UnassignRole", role["crn"])
    return page.show(
        "question.html",
        title=f"Take the role {role['name']} from {whom}?",
        words=words,
        button="Take it away",
        back=page.fill(_ONE),
        is_own=is_self and page.acting.role_id == role["id"],
    )


_attach, _detach = attachment_handlers(ACCOUNT_ROLES, _KIND, _ROLE)
