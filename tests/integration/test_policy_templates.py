"""Ready-made policies: each lets a program do what it says, and nothing beside its names.

The programs are made as a team makes them: one request gives the service account its policy and
its key; from then on it signs in, pushes and pulls like any container client.
"""

from __future__ import annotations

import json
from typing import Any, Final

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX
from tests.integration.served_world import Served
from tests.tenants import basic

INDEX: Final = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
DIGEST: Final = str(digest_of(INDEX))
REGISTRY_ADMIN: Final = {"template": "admin", "names": ["*"]}
READ: Final = {"pull", "describe"}
MAY: Final = {
    "reader": READ,
    "pusher": READ | {"push", "first push", "move a tag"},
    "admin": READ
    | {"push", "first push", "move a tag", "pin", "share", "expire", "delete", "restore"},
}


class Bot:
    """A program with a container login, made in one request."""

    def __init__(self, served: Served) -> None:
        self.served = served

    async def set_up(self, name: str, grants: list[dict[str, Any]]) -> dict[str, Any]:
        body = {"name": name, "grants": grants, "access_key": {"description": "of a test"}}
        path, token = "/v1/service-accounts", self.served.acme.program_token
        answer = await self.served.ask("POST", path, body, token=token)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        key = made["access_key"]
        pair = key["access_key_id"], key["secret_access_key"]
        self.token = await self.served.program_token(*pair)
        login = await self.served.ask("POST", "/v1/authorization-token", token=self.token)
        assert login.status_code == 200, login.text
        self.password = login.json()["password"]
        return made

    async def v2(self, method: str, repository: str, path: str, body: bytes = b"") -> bool:
        scope = f"repository:acme/{repository}:pull,push"
        answer = await self.served.ask(
            "GET", f"/v2/token?scope={scope}", headers=basic(self.password)
        )
        answer = await self.served.ask(
            method,
            f"/v2/acme/{repository}{path}",
            body,
            token=answer.json()["token"],
            headers={"Content-Type": OCI_INDEX} if body else {},
        )
        assert answer.is_success or answer.status_code in (401, 403, 404), answer.text
        return answer.is_success

    async def v1(self, method: str, path: str, body: object = None) -> bool:
        answer = await self.served.ask(method, path, body, token=self.token)
        assert answer.is_success or answer.status_code == 403, (path, answer.text)
        return answer.is_success

    async def abilities(self, repository: str, repository_id: str, new: str) -> set[str]:
        """Return what the program may do with a repository, its image, and a new repository."""
        path = f"/v1/repositories/{repository_id}"
        image = f"{path}/images/{DIGEST}"
        account = self.served.acme.account_id
        share = {"effect": "allow", "principals": [account], "actions": ["registry:PullImage"]}
        rules = [{"priority": 1, "selector": "untagged", "older_than_days": 1}]
        tries = {
            "pull": self.v2("GET", repository, "/manifests/latest"),
            "push": self.v2("PUT", repository, "/manifests/latest", INDEX),
            "first push": self.v2("PUT", new, "/manifests/latest", INDEX),
            "describe": self.v1("GET", f"{path}/images"),
            "move a tag": self.v1("PUT", f"{path}/tags/latest", {"digest": DIGEST}),
            "share": self.v1("PUT", f"{path}/policy", {"version": "1", "statements": [share]}),
            "expire": self.v1("PUT", f"{path}/lifecycle-policy", {"rules": rules}),
            "pin": self.v1("PUT", f"{image}/pins/production", {}),
            "unpin": self.v1("DELETE", f"{image}/pins/production"),
            "unshare": self.v1("DELETE", f"{path}/policy"),
            "delete": self.v1("DELETE", f"{path}/tags/latest"),
            "restore": self.v1("POST", f"{path}/tags/latest/restore"),
        }
        done = {name for name, each in tries.items() if await each}
        return done - {"unpin", "unshare"}


async def repository(served: Served, name: str) -> str:
    """Make a repository with an image, as its account's administrator; return its id."""
    token = served.acme.program_token
    made = await served.make("/v1/repositories", {"name": name}, token=token)
    bearer = await served.bearer(served.acme, f"repository:acme/{name}:push")
    path = f"/v2/acme/{name}/manifests/latest"
    pushed = await served.ask("PUT", path, INDEX, token=bearer, headers={"Content-Type": OCI_INDEX})
    assert pushed.status_code == 201, pushed.text
    return str(made["id"])


async def test_a_template_gives_what_it_says_and_nothing_beside_its_names(served: Served) -> None:
    inside, beside = await repository(served, "web/app"), await repository(served, "website")
    exact, names = await repository(served, "api"), ["web/*", "api"]
    admin = served.acme.program_token
    listed = await served.ask("GET", "/v1/policy-templates?names=web/*,api", token=admin)
    documents = {each["name"]: each["document"] for each in listed.json()["policy_templates"]}
    assert documents.keys() == MAY.keys()
    many = ",".join(f"n{number}" for number in range(21))
    refused = await served.ask("GET", f"/v1/policy-templates?names={many}", token=admin)
    error = refused.json()["error"]
    assert (refused.status_code, error["params"]["reason"]) == (400, "out_of_range")
    for template, may in MAY.items():
        bot = Bot(served)
        made = await bot.set_up(f"of-{template}", [{"template": template, "names": names}])
        assert await bot.abilities("web/app", inside, f"web/{template}") == may
        assert await bot.abilities("api", exact, f"api/{template}") == may - {"first push"}
        assert await bot.abilities("website", beside, f"web-{template}") == set()
        assert not await bot.v1("GET", "/v1/roles")

        (policy,) = made["policies"]
        assert policy["name"] == f"of-{template}-{template}"
        assert policy["document"] == documents[template]
        given = {"name": f"my-{template}", "template": {"name": template, "names": names}}
        again = await served.make("/v1/policies", given, token=admin)
        assert again["document"] == documents[template]


async def test_a_program_is_set_up_whole_or_not_at_all(served: Served) -> None:
    token = served.acme.program_token

    async def refusal(status: int, **body: object) -> dict[str, Any]:
        answer = await served.ask("POST", "/v1/service-accounts", body, token=token)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()["error"]
        return dict(error.get("params", {}))

    push = {"template": "pusher", "names": ["web/*"]}
    for names, reason in (([], "too_short"), (["web/"], "malformed"), (["Web"], "malformed")):
        wrong = await refusal(400, name="ci", grants=[{**push, "names": names}])
        assert wrong["reason"] == reason or names == []
    wrong = await refusal(400, name="ci", grants=[{**push, "template": "push"}])
    assert (wrong["reason"], wrong["suggestions"]) == ("unknown_template", ["pusher"])
    long = await refusal(400, name="c" * 60, grants=[push])
    assert long["reason"] == "policy_name_needed"
    past = {"expires_at": "2001-01-01T00:00:00Z"}
    assert (await refusal(400, name="ci", access_key=past))["field"] == "expires_at"
    await refusal(409, name="ci", grants=[push, push])  # of one name
    both = {"name": "p", "document": {}, "template": {"name": "reader", "names": ["*"]}}
    for body in (both, {"name": "p"}):
        answer = await served.ask("POST", "/v1/policies", body, token=token)
        assert answer.json()["error"]["params"]["reason"] == "one_of"

    listed = await served.ask("GET", "/v1/service-accounts", token=token)
    assert "ci" not in [each["name"] for each in listed.json()["service_accounts"]]
    listed = await served.ask("GET", "/v1/policies", token=token)
    assert "ci-pusher" not in [each["name"] for each in listed.json()["policies"]]

    named = [push, {**push, "names": ["api/*"], "policy_name": "push-api"}]
    made = await served.ask(
        "POST", "/v1/service-accounts", {"name": "ci", "grants": named}, token=token
    )
    assert [each["name"] for each in made.json()["policies"]] == ["ci-pusher", "push-api"]
    assert "access_key" not in made.json()


async def test_a_deleted_program_is_set_up_again_with_its_policy(served: Served) -> None:
    ask, push = served.ask, {"template": "pusher", "names": ["web/*"]}
    token, body = served.acme.program_token, {"name": "again", "grants": [push]}
    made = (await ask("POST", "/v1/service-accounts", body, token=token)).json()
    path = f"/v1/service-accounts/{made['service_account']['id']}"
    assert (await ask("DELETE", path, token=token)).status_code == 204
    again = await ask("POST", "/v1/service-accounts", body, token=token)
    assert again.json()["policies"] == made["policies"]
    program = again.json()["service_account"]["id"]
    attached = await ask("GET", f"/v1/policies?attached_to={program}", token=token)
    assert [each["name"] for each in attached.json()["policies"]] == ["again-pusher"]
    other = {"template": "pusher", "names": ["api/*"], "policy_name": "again-pusher"}
    refused = await ask(
        "POST", "/v1/service-accounts", {"name": "other", "grants": [other]}, token=token
    )
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == (
        "there is a policy again-pusher; delete it, or choose another name"
    )


async def test_setting_up_takes_the_rights_of_its_parts(served: Served) -> None:
    """Who may only create service accounts must not give one more rights than it has."""
    token, body = served.acme.program_token, {"grants": [REGISTRY_ADMIN], "access_key": {}}
    for missing in ("iam:CreatePolicy", "iam:AttachPolicy", "iam:CreateAccessKey"):
        deny = {"effect": "deny", "actions": [missing], "resources": ["crn:*/ci*"]}
        policy = {"name": missing[4:].lower(), "document": {"version": "1", "statements": [deny]}}
        made = await served.make("/v1/policies", policy, token=token)
        path = f"/v1/policies/{made['id']}/attachments"
        attached = await served.make(path, {"service_account": "program"}, token=token)
        answer = await served.ask(
            "POST", "/v1/service-accounts", {"name": "ci", **body}, token=token
        )
        assert answer.status_code == 403
        assert missing in answer.json()["error"]["message"]
        gone = await served.ask("DELETE", f"{path}/{attached['id']}", token=token)
        assert gone.status_code == 204
    assert (await served.make("/v1/service-accounts", {"name": "ci"}, token=token))["name"] == "ci"
