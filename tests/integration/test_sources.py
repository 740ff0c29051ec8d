"""The person stays visible through assumed roles: in history, deletions, runs, pins and bearers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloudcore.identity.names import iam_crn
from registry.oci.media_types import OCI_MANIFEST
from tests.integration.acting_persons import EMAIL, assume, bearer
from tests.integration.served_world import Served, open_served


@dataclass
class Visitor:
    """The owner of acme, in the role that came with the account."""

    served: Served
    role: str
    """Id of the role."""
    token: str
    login: str
    """Password for container clients."""

    @property
    def behind(self) -> dict[str, str | None]:
        person = self.served.acme.person
        crn = iam_crn(person.organization_id, "user", person.id)
        return {"crn": crn, "name": EMAIL, "session_name": EMAIL}

    async def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Ask the control plane below the repository."""
        path = path if path.startswith("/v1") else self.path + path
        answer = await self.served.ask(method, path, body, token=self.token)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else None

    @property
    def path(self) -> str:
        return f"/v1/repositories/{self.served.acme.ids['/v1/repositories/{}']}"

    async def bearer(self, *actions: str) -> str:
        return await bearer(self.served, self.login, *actions)


async def visit(served: Served, **more: object) -> Visitor:
    """Assume the role, and mint a login in it."""
    token = served.acme.person_token
    (role,) = (await served.ask("GET", "/v1/users/me/roles", token=token)).json()["roles"]
    session = await assume(served, token, role["id"], **more)
    minted = await served.ask("POST", "/v1/authorization-token", token=session)
    return Visitor(served, role["id"], session, minted.json()["password"])


@pytest.fixture(scope="module")
async def visitor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """Return the person of one install, shared by this module."""
    folder: Path = tmp_path_factory.mktemp("sources")
    async with open_served(folder / "data") as served:
        yield await visit(served)


async def test_a_push_in_a_role_is_recorded_with_its_person(visitor: Visitor) -> None:
    """The bearer carries the source, so that the push reads nothing to know it."""
    token, tenant = await visitor.bearer("pull", "push"), visitor.served.acme
    manifest = await visitor.ask("GET", f"/images/{tenant.digest}/manifest")
    body = json.dumps(manifest | {"annotations": {"by": "a person"}}).encode()
    visitor.served.database.noted.clear()
    put = await visitor.served.ask(
        "PUT",
        "/v2/acme/app/manifests/pushed",
        body,
        token=token,
        headers={"Content-Type": OCI_MANIFEST},
    )
    assert put.status_code == 201, put.text
    read = [each.statement.sqlite for each in visitor.served.database.noted]
    assert not [text for text in read if "FROM sessions" in text or "FROM users" in text]
    (event,) = (await visitor.ask("GET", "/tags/pushed/history"))["history"]
    assert event["principal"].endswith(":role/admin")
    assert event["source"] == visitor.behind


async def test_deletions_pins_and_runs_name_the_person(visitor: Visitor) -> None:
    digest, behind = visitor.served.acme.digest, visitor.behind
    await visitor.ask("PUT", "/tags/gone", {"digest": digest})
    await visitor.ask("DELETE", "/tags/gone")
    (tag,) = (await visitor.ask("GET", "/deleted-tags"))["tags"]
    assert (tag["tag"], tag["source"]) == ("gone", behind)
    pin = await visitor.ask("PUT", f"/images/{digest}/pins/by-person", {})
    assert pin["pin"]["created_by_source"] == behind
    run = (await visitor.ask("POST", "/v1/garbage-collection/runs"))["run"]
    # The collector's run of the fixture is under way, and was started by the program.
    assert run["started_by_source"]["name"] == "program"
    assert run["started_by_source"]["session_name"] is None


async def test_deleted_images_and_repositories_name_the_person(visitor: Visitor) -> None:
    made = await visitor.ask("POST", "/v1/repositories", {"name": "brief"})
    await visitor.ask("DELETE", f"/v1/repositories/{made['repository']['id']}")
    (found,) = (await visitor.ask("GET", "/v1/repositories/deleted"))["repositories"]
    assert found["deleted_by_source"] == visitor.behind
    tenant = visitor.served.globex
    token, path = tenant.program_token, f"/v1/repositories/{tenant.ids['/v1/repositories/{}']}"
    image = f"{path}/images/{tenant.digest}?force=true"
    gone = await visitor.served.ask("DELETE", image, token=token)
    assert gone.status_code == 204, gone.text
    answer = await visitor.served.ask("GET", f"{path}/images/deleted", token=token)
    (found,) = answer.json()["images"]
    crn = iam_crn(tenant.account_id, "service-account", "program")
    assert found["deleted_by"] == crn
    assert found["deleted_by_source"] == {"crn": crn, "name": "program", "session_name": None}


async def test_a_chain_of_roles_keeps_its_first_source(visitor: Visitor) -> None:
    """A session name is kept where the next role is not given one."""
    served, tenant = visitor.served, visitor.served.acme
    first = await assume(served, tenant.person_token, visitor.role, session_name="friday-fix")
    second = await assume(served, first, "role")  # trusts the whole account, may do nothing
    role = f"/v1/roles/{tenant.ids['/v1/roles/{}']}"
    policy = f"/v1/policies/{tenant.ids['/v1/policies/{}']}"
    everything = {"effect": "allow", "actions": ["registry:*"], "resources": ["*"]}
    document = {"version": "1", "statements": [everything]}
    await visitor.ask("PATCH", policy, {"document": document})
    role_id = role.rpartition("/")[2]
    await visitor.ask("POST", f"{policy}/attachments", {"role": role_id})
    moved = await served.ask(
        "PUT", f"{visitor.path}/tags/chained", {"digest": tenant.digest}, token=second
    )
    assert moved.status_code == 201, moved.text
    (event,) = (await visitor.ask("GET", "/tags/chained/history"))["history"]
    assert event["principal"] == iam_crn(tenant.account_id, "role", "role")
    assert event["source"] == visitor.behind | {"session_name": "friday-fix"}
