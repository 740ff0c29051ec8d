"""The resource policy of a repository."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repository_paths import api_path, path_of, read_repository
from registry.console.paths import REPOSITORY

_PATH: Final = f"{REPOSITORY}/policy"
EXAMPLE: Final = {
    "version": "1",
    "statements": [
        {"effect": "allow", "principals": ["partner"], "actions": ["registry:PullImage"]}
    ],
}


@get(_PATH)
async def show_policy(page: InjectedPage) -> PageResponse:
    """Show the policy, or an example if there is none."""
    return await _page(page)


@post(_PATH)
async def save_policy(page: InjectedPage) -> PageResponse:
    """Save the policy of a form."""
    form = page.form
    written = form.get("document", "")
    try:
        document = msgspec.json.decode(written, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        complaint = f"The policy is no JSON object: {error}"
        return await _page(page, 400, written=written, complaint=complaint)
    force = "true" if "force" in form else None
    try:
        await page.api.change("PUT", f"{api_path(page)}/policy", document, force=force)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        return await _page(page, error.status, written=written, complaint=error.message)
    return page.go(path_of(page).tab("policy"), "policy-saved")


@post(f"{_PATH}/delete")
async def delete_policy(page: InjectedPage) -> PageResponse:
    """Delete the policy."""
    await page.api.change("DELETE", f"{api_path(page)}/policy")
    return page.go(path_of(page).tab("policy"), "policy-deleted")


async def _page(
    page: PageRequest,
    status: int = 200,
    *,
    written: str = "",
    complaint: str = "",
) -> PageResponse:
    repository = await read_repository(page)
    try:
        policy = (await page.api.get(f"{api_path(page)}/policy"))["policy"]
    except Refused as error:
        if error.status != 404:
            raise
        policy = None
    document = policy["document"] if policy else EXAMPLE
    shown = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return page.show(
        "policy.html",
        status,
        repository=repository,
        policy=policy,
        written=written or shown,
        complaint=complaint,
    )


HANDLERS: Final = (show_policy, save_policy, delete_policy)
