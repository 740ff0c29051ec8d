"""Policies: documents, revisions, what they are attached to, and ways up that must not be."""

from __future__ import annotations

from typing import Any

from tests.databases import on_both_databases
from tests.identity_world import ALLOW_ALL, World
from tests.tenants import allow, document, trust

POLICIES = "/v1/policies"


def about(*resources: str, effect: str = "allow", actions: tuple[str, ...] = ("*",)) -> Any:  # noqa: ANN401
    """Return a document of one statement."""
    return document({"effect": effect, "actions": [*actions], "resources": [*resources]})


async def make_policy(world: World, name: str) -> dict[str, Any]:
    """Make a policy that allows everything."""
    return dict(await world.make(POLICIES, {"name": name, "document": about("*")}))


async def test_a_policy_lives(identity: World) -> None:
    policy = await make_policy(identity, "all")
    assert policy["crn"] == f"crn:iam::{identity.acme.account_id}:policy/all"
    assert policy["revision"] == 1
    path = f"{POLICIES}/{policy['id']}"
    assert await identity.show(path) == policy
    same = await identity.ask("PATCH", path, {"document": about("*"), "description": "d"})
    assert same.json()["policy"]["revision"] == 1
    other = await identity.ask("PATCH", path, {"document": about("*", effect="deny")})
    assert other.json()["policy"]["revision"] == 2
    assert other.json()["policy"]["description"] == "d"
    large = about(*(f"crn:{index:03}" + "x" * 240 for index in range(90)))
    for document_, field in (({"version": "1"}, "statements"), (large, "document")):
        wrong = await identity.ask("PATCH", path, {"document": document_})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["params"]["field"] == field
    assert (await identity.ask("GET", path)).json() == other.json()
    assert [each["name"] for each in await identity.show(POLICIES)] == ["admin", "all"]
    assert await identity.status("POST", POLICIES, {"name": "all", "document": about("*")}) == 409
    assert await identity.status("DELETE", path) == 204
    assert await identity.status("GET", path) == 404


async def test_handles_in_documents_mean_their_accounts(identity: World) -> None:
    """A handle in a deny must not be a name that no resource has; others are shown as written."""
    own, other = identity.acme.account_id, identity.globex.account_id
    given = [
        "crn:registry:*:acme:repository/*",
        "crn:registry:eu:globex:repository/a",
        f"crn:registry:eu:{other}:repository/b",
        "crn:registry:eu:*:repository/c",
        "crn:*",
        "crn:iam::acme:role/x",
    ]
    policy = await identity.make(POLICIES, {"name": "p", "document": about(*given)})
    kept = [f"crn:registry:*:{own}:repository/*", *given[1:5], f"crn:iam::{own}:role/x"]
    assert policy["document"]["statements"][0]["resources"] == kept
    unknown = about("crn:registry:eu:nobody:repository/*")
    made = await identity.make(POLICIES, {"name": "q", "document": unknown})
    assert made["document"] == unknown  # as of an account that exists

    deny = about("crn:registry:eu:globex:repository/*", effect="deny")
    program = await identity.program("ci", ALLOW_ALL, *deny["statements"])
    (policy_,) = await identity.permissions.policies_of(identity.principals[program.name])
    (denial,) = policy_.about("registry:PullImage").denies
    assert denial.resources.match(f"crn:registry:eu:{other}:repository/x")


async def test_the_longest_resource_does_not_tell_which_accounts_exist(identity: World) -> None:
    """The id that replaces a handle is longer, and counts for a handle that nobody has too."""

    async def status(handle: str, size: int) -> int:
        named = f"crn:registry:eu:{handle}:repository/"
        body = {"name": f"{handle}-{size}", "document": about(named.ljust(size, "x"))}
        return await identity.status("POST", POLICIES, body)

    longest = 2048
    for handle in ("globex", "nobody"):
        assert await status(handle, longest) == 400
        assert await status(handle, longest - 36 + len(handle)) == 201


async def test_a_new_document_names_only_what_exists(identity: World) -> None:
    async def refusal(method: str, path: str, wrong: object, **more: object) -> dict[str, Any]:
        answer = await identity.ask(method, path, {"document": wrong, **more})
        assert answer.status_code == 400, answer.text
        return dict(answer.json()["error"])

    made = await make_policy(identity, "p")
    path = f"{POLICIES}/{made['id']}"
    action = about("*", actions=("registry:PullImage", "registry:PulImage"))
    for method, where, more in (("POST", POLICIES, {"name": "q"}), ("PATCH", path, {})):
        error = await refusal(method, where, action, **more)
        assert "registry:PulImage" in error["message"]
        assert error["params"]["reason"] == "unknown_action"
        assert error["params"]["suggestions"][0] == "registry:PullImage"
        error = await refusal(method, where, about("crn:registry:*:acme:repo/web"), **more)
        assert error["params"]["reason"] == "unknown_resource"
    assert (await identity.show(path))["revision"] == 1


async def test_a_stored_document_with_an_unknown_action_stays_in_force(identity: World) -> None:
    """It was stored when the action existed, or before documents were checked."""
    deny = about("*", effect="deny", actions=("registry:Vanished", "iam:ListRoles"))
    await identity.program("ci", ALLOW_ALL, *deny["statements"])
    assert await identity.status("GET", "/v1/roles", token="ci") == 403
    (policy,) = await identity.show(f"{POLICIES}?name=of-ci")
    assert "registry:Vanished" in policy["document"]["statements"][1]["actions"]
    path = f"{POLICIES}/{policy['id']}"
    changed = await identity.ask("PATCH", path, {"description": "old"})
    assert changed.json()["policy"]["document"] == policy["document"]
    assert await identity.status("GET", "/v1/roles", token="ci") == 403


@on_both_databases
async def test_the_policies_of_one_principal_are_listed(identity: World) -> None:
    program = await identity.make("/v1/service-accounts", {"name": "listed"})
    for name in ("second", "first", "unattached"):
        policy = await make_policy(identity, name)
        if name != "unattached":
            path = f"{POLICIES}/{policy['id']}/attachments"
            await identity.make(path, {"service_account": program["id"]})
    mine = f"{POLICIES}?attached_to={program['id'].upper()}"
    assert [each["name"] for each in await identity.show(mine)] == ["first", "second"]
    page = (await identity.ask("GET", f"{mine}&limit=1")).json()
    assert page["meta"]["total"] == 2
    (rest,) = await identity.show(f"{mine}&limit=1&marker={page['meta']['marker']}")
    assert rest["name"] == "second"
    assert await identity.status("GET", f"{POLICIES}?attached_to=listed") == 400
    foreign = (await identity.ask("GET", mine, token="stranger")).json()
    assert (foreign["policies"], foreign["meta"]["total"]) == ([], 0)


async def test_rights_follow_attachments_at_once(identity: World) -> None:
    await identity.program("ci")

    async def status() -> int:
        return await identity.status("GET", "/v1/roles", token="ci")

    assert await status() == 403
    policy = await identity.make(
        POLICIES, {"name": "read", "document": about("*", actions=("iam:ListRoles",))}
    )
    attachments = f"{POLICIES}/{policy['id']}/attachments"
    made = await identity.make(attachments, {"service_account": "ci"})
    assert made["service_account"]["name"] == "ci"
    assert made["role"] is None
    assert made["policy"]["name"] == "read"
    assert await status() == 200
    path = f"{POLICIES}/{policy['id']}"
    await identity.ask("PATCH", path, {"document": about("*", effect="deny")})
    assert await status() == 403
    await identity.ask("PATCH", path, {"document": about("*")})
    assert await status() == 200
    assert await identity.status("DELETE", path) == 409
    assert await identity.status("DELETE", f"{attachments}/{made['id']}") == 204
    assert await status() == 403
    assert await identity.status("DELETE", f"{attachments}/{made['id']}") == 404
    assert await identity.status("DELETE", path) == 204


async def test_a_policy_is_attached_once_to_one_principal(identity: World) -> None:
    """`test_named_resources` has what may name the principal."""
    ci, policy = await identity.program("ci"), await make_policy(identity, "p")
    path = f"{POLICIES}/{policy['id']}/attachments"
    made = await identity.make(path, {"service_account": "crn:iam::acme:service-account/ci"})
    assert made["service_account"]["id"] == ci.id
    assert await identity.status("POST", path, {"service_account": ci.id}) == 409
    for body in ({}, {"role": "admin", "service_account": "ci"}, {"role": None}):
        assert await identity.status("POST", path, body) == 400


async def test_a_principal_has_at_most_ten_policies(identity: World) -> None:
    paths = []
    for index in range(11):
        policy = await make_policy(identity, f"p{index}")
        paths.append(f"{POLICIES}/{policy['id']}/attachments")
    body = {"role": "admin"}  # which has one already
    statuses = [await identity.status("POST", path, body) for path in paths]
    assert statuses == [201] * 9 + [409] * 2
    assert [each["role"]["name"] for each in await identity.show(paths[0])] == ["admin"]


async def test_attaching_needs_the_right_on_policy_and_principal(identity: World) -> None:
    await identity.program("target")
    may = {"effect": "allow", "actions": ["iam:AttachPolicy", "iam:DetachPolicy"]}
    policy = await make_policy(identity, "p")
    path = f"{POLICIES}/{policy['id']}/attachments"
    body = {"service_account": "target"}
    await identity.program("half", may | {"resources": [policy["crn"]]})
    assert await identity.status("POST", path, body, token="half") == 403
    await identity.program(
        "whole", may | {"resources": [policy["crn"], "crn:iam::acme:service-account/target"]}
    )
    made = await identity.make(path, body, token="whole")
    assert await identity.status("POST", path, {"service_account": "whole"}, token="whole") == 403
    gone = f"{path}/{made['id']}"
    assert await identity.status("DELETE", gone, token="half") == 403
    assert await identity.status("DELETE", gone, token="whole") == 204


async def test_a_key_for_another_program_needs_the_right_on_it(identity: World) -> None:
    own = f"crn:iam::{identity.acme.account_id}:service-account/self"
    found = await identity.program(
        "self", allow("iam:CreateAccessKey", "iam:UpdateServiceAccount", on=own)
    )
    admin = identity.principals["admin"].id
    stranger = identity.principals["stranger"].id
    for target, status in ((found.id, 201), (admin, 403), (stranger, 404)):
        path = f"/v1/service-accounts/{target}/access-keys"
        assert await identity.status("POST", path, token="self") == status
    path = f"/v1/service-accounts/{admin}"
    assert await identity.status("PATCH", path, {"status": "suspended"}, token="self") == 403


async def test_a_role_is_not_made_to_trust_its_finder(identity: World) -> None:
    own = f"crn:iam::{identity.acme.account_id}:role/own-*"
    await identity.program("maker", allow("iam:CreateRole", on=own))
    await identity.program("changer", allow("iam:UpdateRole", "iam:AssignRole", on=own))
    change = {"trust_policy": trust(identity.principals["changer"].crn)}
    made = await identity.make("/v1/roles", {"name": "own-1", **change}, token="maker")
    other = {"name": "admin-2", **change}
    assert await identity.status("POST", "/v1/roles", other, token="maker") == 403
    for role_id, status in (
        (made["id"], 200),
        (identity.acme.role_id, 403),
        (identity.globex.role_id, 404),
    ):
        path = f"/v1/roles/{role_id}"
        assert await identity.status("PATCH", path, change, token="changer") == status
    path = f"/v1/roles/{identity.acme.role_id}/assignments"
    person = {"user": identity.acme.person.id}
    assert await identity.status("POST", path, person, token="changer") == 403
