"""The resource policy of a repository."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.refusals import NOTHING_SAVED, OUTDATED, is_outdated
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
    path, revision = f"{api_path(page)}/policy", form.get("revision")
    try:
        await page.api.change("PUT", path, document, force=force, revision=revision)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        outdated = is_outdated(error)
        complaint = OUTDATED if outdated else error.message
        return await _page(
            page, error.status, written=written, complaint=complaint, outdated=outdated
        )
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
    outdated: bool = False,
) -> PageResponse:
    repository = await read_repository(page)
    try:
        policy = (await page.api.get(f"{api_path(page)}/policy"))["policy"]
    except Refused as error:
        if error.status != 404:
            raise
        policy = None
    revision = policy["revision"] if policy else 0
    document = policy["document"] if policy else EXAMPLE
    shown = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return page.show(
        "policy.html",
        status,
        repository=repository,
        policy=policy,
        written=written or shown,
        saved=(shown if policy else NOTHING_SAVED) if outdated else "",
        revision=revision if outdated else page.form.get("revision", revision),
        complaint=complaint,
    )


HANDLERS: Final = (show_policy, save_policy, delete_policy)
