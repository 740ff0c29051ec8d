"""Policies of the account `acme`, as its administrator writes them."""

from __future__ import annotations

from typing import Any

from tests.integration.served_world import Served, Tenant

PULL = "registry:PullImage"


def crn(tenant: Tenant, kind: str, name: str) -> str:
    service = "registry:local" if kind == "repository" else "iam:"
    return f"crn:{service}:{tenant.account_id}:{kind}/{name}"


def say(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1", "statements": list(statements)}


def allow(*actions: str, on: str = "*", **more: object) -> dict[str, Any]:
    return {"effect": "allow", "actions": [*actions], "resources": [on], **more}


def let(*principals: str, effect: str = "allow") -> dict[str, Any]:
    return {"effect": effect, "actions": [PULL], "principals": [*principals]}


async def add_program(served: Served, *statements: dict[str, Any]) -> str:
    """Make the service account `ci` with a policy of these statements; return its CRN."""
    token = served.acme.program_token
    made = await served.make("/v1/service-accounts", {"name": "ci"}, token=token)
    if statements:
        body = {"name": "of-ci", "document": say(*statements)}
        policy = await served.make("/v1/policies", body, token=token)
        path = f"/v1/policies/{policy['id']}/attachments"
        await served.make(path, {"service_account": "ci"}, token=token)
    return str(made["crn"])


async def share(served: Served, *statements: dict[str, Any]) -> None:
    """Replace the policy of the repository `app`."""
    path = f"/v1/repositories/{served.acme.ids['/v1/repositories/{}']}/policy?force=true"
    answer = await served.ask("PUT", path, say(*statements), token=served.acme.program_token)
    assert answer.status_code == 200, answer.text
