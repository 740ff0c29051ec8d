"""The groups of identity providers that have a role: list, assign and unassign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from registry.console.control_plane import unless_refused
from registry.console.page_request import PageRequest
from registry.console.pages.role_trust import admit

_MOST = 200
"""More than a role, or an organization, can have."""


class RoleGroups(NamedTuple):
    """What a page shows of the groups of a role."""

    assigned: Sequence[dict[str, Any]] | None
    """None if the role of the session may not list them."""
    providers: Sequence[dict[str, Any]] | None
    """Those that can be chosen; None if the person does not own the organization."""

    def name_of(self, provider_id: str) -> str:
        """Return the name of a provider, or its id if the person may not know it."""
        names = {each["id"]: str(each["name"]) for each in self.providers or ()}
        return names.get(provider_id, provider_id)


async def read_groups(page: PageRequest, role_id: str) -> RoleGroups:
    """Return the groups of a role, and the providers of the account's organization."""
    found = await unless_refused(page.api.get(_api(role_id), limit=_MOST))
    assigned = None if found is None else found["group_assignments"]
    return RoleGroups(assigned, await unless_refused(_providers(page)))


async def assign_group(page: PageRequest, role_id: str) -> None:
    """Assign a role to the group that a form names.

    With ``trust`` in the form, its trust policy is made to admit all people of the provider.

    Raises:
        Refused: ``/v1`` does not let it be assigned, or the trust policy be changed.

    """
    body = {
        "identity_provider": page.form.get("identity_provider", "").strip(),
        "group": page.form.get("group", "").strip(),
    }
    made = (await page.api.post(_api(role_id), body))["group_assignment"]
    if "trust" in page.form:
        for each in await _providers(page):
            if each["id"] == made["identity_provider"]:
                await admit(page, role_id, each["crn"])


async def unassign_group(page: PageRequest, role_id: str, assignment_id: str) -> None:
    """Unassign a role from a group."""
    await page.api.change("DELETE", f"{_api(role_id)}/{assignment_id}")


def _api(role_id: str) -> str:
    return f"/v1/roles/{role_id}/group-assignments"


async def _providers(page: PageRequest) -> Sequence[dict[str, Any]]:
    acting = page.session.acting
    assert acting is not None, "the route admits only who acts in a role"
    account = (await page.person.get(f"/v1/accounts/{acting.account_id}"))["account"]
    if account["organization"] is None:
        return ()
    path = f"/v1/organizations/{account['organization']['id']}/identity-providers"
    found: Sequence[dict[str, Any]] = (await page.person.get(path, limit=_MOST))[
        "identity_providers"
    ]
    return found
