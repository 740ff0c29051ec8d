"""Policies: documents, revisions, and what they are attached to; rights follow at once."""

from __future__ import annotations

from typing import Any

from tests.databases import on_both_databases
from tests.identity_world import ALLOW_ALL, World

POLICIES = "/v1/policies"


def document(*resources: str, effect: str = "allow", actions: tuple[str, ...] = ("*",)) -> Any:  # noqa: ANN401
    statement = {"effect": effect, "actions": [*actions], "resources": [*resources]}
    return {"version": "1", "statements": [statement]}


async def test_a_policy_lives(identity: World) -> None:
    policy = await identity.make(POLICIES, {"name": "all", "document": document("*")})
    assert policy["crn"] == f"crn:iam::{identity.acme.account_id}:policy/all"
    assert policy["revision"] == 1
    path = f"{POLICIES}/{policy['id']}"
    assert (await identity.ask("GET", path)).json()["policy"] == policy

    same = await identity.ask("PATCH", path, {"document": document("*"), "description": "d"})
    assert same.json()["policy"]["revision"] == 1
    other = await identity.ask("PATCH", path, {"document": document("*", effect="deny")})
    assert other.json()["policy"]["revision"] == 2
    assert other.json()["policy"]["description"] == "d"
    wrong = await identity.ask("PATCH", path, {"document": {"version": "1"}})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["params"]["field"] == "statements"
    assert (await identity.ask("GET", path)).json() == other.json()

    names = [each["name"] for each in (await identity.ask("GET", POLICIES)).json()["policies"]]
    assert names == ["admin", "all"]
    taken = await identity.ask("POST", POLICIES, {"name": "all", "document": document("*")})
    assert taken.status_code == 409
    assert (await identity.ask("DELETE", path)).status_code == 204
    assert (await identity.ask("GET", path)).status_code == 404


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
    policy = await identity.make(POLICIES, {"name": "p", "document": document(*given)})
    assert policy["document"]["statements"][0]["resources"] == [
        f"crn:registry:*:{own}:repository/*",
        given[1],
        given[2],
        given[3],
        given[4],
        f"crn:iam::{own}:role/x",
    ]
    unknown = document("crn:registry:eu:nobody:repository/*")
    made = await identity.make(POLICIES, {"name": "q", "document": unknown})
    assert made["document"] == unknown  # as of an account that exists

    deny = document("crn:registry:eu:globex:repository/*", effect="deny")
    program = await identity.program("ci", ALLOW_ALL, *deny["statements"])
    (policy_,) = await identity.permissions.policies_of(identity.principals[program.name])
    (denial,) = policy_.about("registry:PullImage").denies
    assert denial.resources.match(f"crn:registry:eu:{other}:repository/x")


async def test_the_longest_resource_does_not_tell_which_accounts_exist(identity: World) -> None:
    """The id that replaces a handle is longer, and counts for a handle that nobody has too."""

    async def status(handle: str, size: int) -> int:
        named = f"crn:registry:eu:{handle}:repository/"
        body = {"name": f"{handle}-{size}", "document": document(named.ljust(size, "x"))}
        return (await identity.ask("POST", POLICIES, body)).status_code

    longest = 2048
    for handle in ("globex", "nobody"):
        assert await status(handle, longest) == 400
        assert await status(handle, longest - 36 + len(handle)) == 201


async def test_a_new_document_names_only_what_exists(identity: World) -> None:
    async def refusal(method: str, path: str, wrong: object, **more: object) -> dict[str, Any]:
        answer = await identity.ask(method, path, {"document": wrong, **more})
        assert answer.status_code == 400, answer.text
        found: dict[str, Any] = answer.json()["error"]
        return found

    made = await identity.make(POLICIES, {"name": "p", "document": document("*")})
    path = f"{POLICIES}/{made['id']}"
    action = document("*", actions=("registry:PullImage", "registry:PulImage"))
    for method, where, more in (("POST", POLICIES, {"name": "q"}), ("PATCH", path, {})):
        error = await refusal(method, where, action, **more)
        assert "registry:PulImage" in error["message"]
        assert error["params"]["reason"] == "unknown_action"
        assert error["params"]["suggestions"][0] == "registry:PullImage"
        error = await refusal(method, where, document("crn:registry:*:acme:repo/web"), **more)
        assert error["params"]["reason"] == "unknown_resource"
    assert (await identity.ask("GET", path)).json()["policy"]["revision"] == 1


async def test_a_stored_document_with_an_unknown_action_stays_in_force(identity: World) -> None:
    """It was stored when the action existed, or before documents were checked."""
    deny = document("*", effect="deny", actions=("registry:Vanished", "iam:ListRoles"))
    await identity.program("ci", ALLOW_ALL, *deny["statements"])
    assert (await identity.ask("GET", "/v1/roles", token="ci")).status_code == 403
    found = (await identity.ask("GET", POLICIES)).json()["policies"]
    (policy,) = [each for each in found if each["name"] == "of-ci"]
    assert "registry:Vanished" in policy["document"]["statements"][1]["actions"]
    path = f"{POLICIES}/{policy['id']}"
    changed = await identity.ask("PATCH", path, {"description": "old"})
    assert changed.json()["policy"]["document"] == policy["document"]
    assert (await identity.ask("GET", "/v1/roles", token="ci")).status_code == 403


async def test_a_document_has_a_largest_size(identity: World) -> None:
    large = document(*(f"crn:{index:03}" + "x" * 240 for index in range(90)))
    answer = await identity.ask("POST", POLICIES, {"name": "large", "document": large})
    assert answer.status_code == 400
    assert answer.json()["error"]["params"]["field"] == "document"


@on_both_databases
async def test_the_policies_of_one_principal_are_listed(identity: World) -> None:
    program = await identity.make("/v1/service-accounts", {"name": "listed"})
    for name in ("second", "first", "unattached"):
        policy = await identity.make(POLICIES, {"name": name, "document": document("*")})
        if name != "unattached":
            path = f"{POLICIES}/{policy['id']}/attachments"
            await identity.make(path, {"service_account": program["id"]})
    mine = f"{POLICIES}?attached_to={program['id'].upper()}"
    listed = (await identity.ask("GET", mine)).json()
    assert [each["name"] for each in listed["policies"]] == ["first", "second"]
    assert listed["meta"]["total"] == 2
    page = (await identity.ask("GET", f"{mine}&limit=1")).json()
    rest = await identity.ask("GET", f"{mine}&limit=1&marker={page['meta']['marker']}")
    assert [each["name"] for each in rest.json()["policies"]] == ["second"]
    assert (await identity.ask("GET", f"{POLICIES}?attached_to=listed")).status_code == 400
    foreign = await identity.ask("GET", mine, token="stranger")
    assert (foreign.json()["policies"], foreign.json()["meta"]["total"]) == ([], 0)


async def test_rights_follow_attachments_at_once(identity: World) -> None:
    await identity.program("ci")

    async def status() -> int:
        return (await identity.ask("GET", "/v1/roles", token="ci")).status_code

    assert await status() == 403
    policy = await identity.make(
        POLICIES, {"name": "read", "document": document("*", actions=("iam:ListRoles",))}
    )
    attachments = f"{POLICIES}/{policy['id']}/attachments"
    made = await identity.make(attachments, {"service_account": "ci"})
    assert made["service_account"]["name"] == "ci"
    assert made["role"] is None
    assert made["policy"]["name"] == "read"
    assert await status() == 200
    path = f"{POLICIES}/{policy['id']}"
    await identity.ask("PATCH", path, {"document": document("*", effect="deny")})
    assert await status() == 403
    await identity.ask("PATCH", path, {"document": document("*")})
    assert await status() == 200
    assert (await identity.ask("DELETE", path)).status_code == 409
    assert (await identity.ask("DELETE", f"{attachments}/{made['id']}")).status_code == 204
    assert await status() == 403
    assert (await identity.ask("DELETE", f"{attachments}/{made['id']}")).status_code == 404
    assert (await identity.ask("DELETE", path)).status_code == 204


async def test_a_principal_is_referred_to_by_id_name_or_crn(identity: World) -> None:
    account = identity.acme.account_id
    ci = await identity.program("ci")
    policy = await identity.make(POLICIES, {"name": "p", "document": document("*")})
    path = f"{POLICIES}/{policy['id']}/attachments"
    for reference in (
        ci.id,
        "ci",
        f"crn:iam::{account}:service-account/ci",
        "crn:iam::acme:service-account/ci",
    ):
        made = await identity.make(path, {"service_account": reference})
        assert made["service_account"]["id"] == ci.id
        again = await identity.ask("POST", path, {"service_account": reference})
        assert again.status_code == 409
        await identity.ask("DELETE", f"{path}/{made['id']}")
    for reference, reason in (
        ("crn:iam::globex:service-account/foreign", "foreign_account"),
        ("crn:iam:eu:acme:service-account/ci", "foreign_region"),
        ("crn:iam::acme:role/ci", "malformed_crn"),
    ):
        answer = await identity.ask("POST", path, {"service_account": reference})
        assert answer.json()["error"]["params"]["reason"] == reason
    for body in ({}, {"role": "admin", "service_account": "ci"}, {"role": None}):
        assert (await identity.ask("POST", path, body)).status_code == 400


async def test_a_principal_has_at_most_ten_policies(identity: World) -> None:
    paths = []
    for index in range(11):
        policy = await identity.make(POLICIES, {"name": f"p{index}", "document": document("*")})
        paths.append(f"{POLICIES}/{policy['id']}/attachments")
    body = {"role": "admin"}  # which has one already
    statuses = [(await identity.ask("POST", path, body)).status_code for path in paths]
    assert statuses == [201] * 9 + [409] * 2
    listed = (await identity.ask("GET", paths[0])).json()
    assert [each["role"]["name"] for each in listed["attachments"]] == ["admin"]


async def test_attaching_needs_the_right_on_policy_and_principal(identity: World) -> None:
    await identity.program("target")
    may = {"effect": "allow", "actions": ["iam:AttachPolicy", "iam:DetachPolicy"]}
    policy = await identity.make(POLICIES, {"name": "p", "document": document("*")})
    path = f"{POLICIES}/{policy['id']}/attachments"
    body = {"service_account": "target"}
    await identity.program("half", may | {"resources": [policy["crn"]]})
    assert (await identity.ask("POST", path, body, token="half")).status_code == 403
    await identity.program(
        "whole", may | {"resources": [policy["crn"], "crn:iam::acme:service-account/target"]}
    )
    made = await identity.make(path, body, token="whole")
    own = await identity.ask("POST", path, {"service_account": "whole"}, token="whole")
    assert own.status_code == 403
    gone = f"{path}/{made['id']}"
    assert (await identity.ask("DELETE", gone, token="half")).status_code == 403
    assert (await identity.ask("DELETE", gone, token="whole")).status_code == 204


async def test_a_deny_of_one_thing_leaves_the_others(identity: World) -> None:
    first = await identity.make(POLICIES, {"name": "first", "document": document("*")})
    second = await identity.make(POLICIES, {"name": "second", "document": document("*")})
    deny = {"effect": "deny", "actions": ["iam:*"], "resources": [first["crn"]]}
    await identity.program("most", ALLOW_ALL, deny)
    for policy, status in ((first, 403), (second, 200)):
        answer = await identity.ask("GET", f"{POLICIES}/{policy['id']}", token="most")
        assert answer.status_code == status
