"""The resource policy of a repository: who else may come."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from registry.console.control_plane import Refused
from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path, page_path, read_repository
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

_PATH: Final = f"{PATH}/policy"
EXAMPLE: Final = {
    "version": "1",
    "statements": [
        {"effect": "allow", "principals": ["partner"], "actions": ["registry:PullImage"]}
    ],
}


async def show_policy(visit: Visit, parameters: Parameters) -> Response:
    """Show the policy, or that there is none."""
    return await _page(visit, parameters)


async def save_policy(visit: Visit, parameters: Parameters) -> Response:
    """Give the repository this policy."""
    form = visit.request.form
    written = form.get("document", "")
    try:
        document = msgspec.json.decode(written, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        complaint = f"The policy is no JSON object: {error}"
        return await _page(visit, parameters, 400, written=written, complaint=complaint)
    force = "true" if "force" in form else None
    try:
        await visit.api.change("PUT", f"{api_path(parameters)}/policy", document, force=force)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        return await _page(
            visit, parameters, error.status, written=written, complaint=error.message
        )
    return visit.go(f"{page_path(parameters)}/policy", "policy-saved")


async def delete_policy(visit: Visit, parameters: Parameters) -> Response:
    """Take the policy away."""
    await visit.api.change("DELETE", f"{api_path(parameters)}/policy")
    return visit.go(f"{page_path(parameters)}/policy", "policy-deleted")


async def _page(
    visit: Visit,
    parameters: Parameters,
    status: int = 200,
    *,
    written: str = "",
    complaint: str = "",
) -> Response:
    repository = await read_repository(visit, parameters)
    try:
        policy = (await visit.api.get(f"{api_path(parameters)}/policy"))["policy"]
    except Refused as error:
        if error.status != 404:
            raise
        policy = None
    document = policy["document"] if policy else EXAMPLE
    shown = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return visit.page(
        "policy.html",
        status,
        repository=repository,
        policy=policy,
        written=written or shown,
        complaint=complaint,
    )


ROUTES: Final = [
    Route("GET", _PATH, show_policy),
    Route("POST", _PATH, save_policy),
    Route("POST", f"{_PATH}/delete", delete_policy),
]
