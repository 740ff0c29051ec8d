"""Whose images are whose, and what each operation on them needs."""

from __future__ import annotations

import pytest

from tests.integration.images_world import NOBODY
from tests.integration.pushing import World, make_world, refused
from tests.tenants import allow, bearer, document, let


async def test_images_of_other_accounts_are_unknown(world: World) -> None:
    """Who may nothing learns nothing: no answer tells foreign and made-up ids apart."""

    image = await world.push_image("one", "v1")
    other = await make_world(world.install, "other")
    account = await world.install.add_account("powerless")
    program = await world.install.add_program(account, "ci", allow("storage:GetObject"))
    powerless = world.install.connect()
    powerless.headers.update(bearer(program.access_token))
    digest = image["digest"]
    before = await world.get("/images"), await world.get("/tags")
    for method, path, body in (
        ("GET", "/images", None),
        ("GET", f"/images/{digest}", None),
        ("GET", f"/images/{digest}/manifest", None),
        ("GET", f"/images/{digest}/referrers", None),
        ("GET", f"/images/{digest}?include=configuration", None),
        ("GET", f"/images/{digest}/deletion-preview", None),
        ("POST", f"/images/{digest}/delete-with-children", {}),
        ("DELETE", f"/images/{digest}", None),
        ("DELETE", f"/images/{digest}?force=true", None),
        ("POST", "/images/batch-delete", {"digests": [digest], "tags": ["v1"]}),
        ("GET", "/tags", None),
        ("GET", "/tags/v1", None),
        ("PUT", "/tags/v1", {"digest": digest}),
        ("DELETE", "/tags/v1", None),
    ):
        for client, status in ((other.control, 404), (powerless, 403)):
            answers = [
                await client.request(method, f"/v1/repositories/{ident}{path}", json=body)
                for ident in (world.repository_id, NOBODY)
            ]
            assert {answer.status_code for answer in answers} == {status}
            texts = {answer.text.replace(answer.headers["x-request-id"], "") for answer in answers}
            assert len(texts) == 1
        for ident in ("x", NOBODY.upper()):
            answer = await world.control.request(
                method, f"/v1/repositories/{ident}{path}", json=body
            )
            assert answer.status_code == 404
    assert before == (await world.get("/images"), await world.get("/tags"))


async def test_an_image_of_another_repository_is_not_here(world: World) -> None:
    image = await world.push_image("one", "v1")
    other = await world.another("other")
    ident = (await world.get(f"/images/{image['digest']}"))["image"]["id"]
    for name in (image["digest"], ident):
        for method, path in (
            ("GET", f"/images/{name}"),
            ("GET", f"/images/{name}/manifest"),
            ("DELETE", f"/images/{name}"),
        ):
            answer = await world.control.request(method, f"{other.path}{path}")
            refused(answer, 404, "NOT_FOUND")
    put = await world.control.put(f"{other.path}/tags/v1", json={"digest": image["digest"]})
    refused(put, 404, "NOT_FOUND")
    assert await world.pulls("v1")


@pytest.mark.parametrize(
    ("action", "statuses"),
    [
        ("registry:DescribeImages", (200, 200, 200, 200, 403, 403, 403, 403)),
        ("registry:PushImage", (403, 403, 403, 403, 201, 403, 403, 403)),
        ("registry:DeleteImage", (403, 403, 403, 403, 403, 200, 204, 204)),
        ("registry:PullImage", (403, 403, 403, 403, 403, 403, 403, 403)),
    ],
)
async def test_each_operation_needs_its_own_action(
    world: World, action: str, statuses: tuple[int, ...]
) -> None:
    image = await world.push_image("one", "v1", "v2")
    digest = image["digest"]
    crn = "crn:registry:local:acme:repository/app"
    program = await world.install.add_program(world.account, "few", allow(action, on=crn))
    headers = bearer(program.access_token)
    found = []
    for method, path, body in (
        ("GET", "/images", None),
        ("GET", f"/images/{digest}/manifest", None),
        ("GET", f"/images/{digest}/referrers", None),
        ("GET", "/tags/v1", None),
        ("PUT", "/tags/new", {"digest": digest}),
        ("POST", "/images/batch-delete", {"tags": ["v2"]}),
        ("DELETE", "/tags/v1", None),
        ("DELETE", f"/images/{digest}", None),
    ):
        answer = await world.control.request(
            method, f"{world.path}{path}", json=body, headers=headers
        )
        found.append(answer.status_code)
    assert tuple(found) == statuses


async def test_the_repositorys_own_policy_counts_for_its_account_too(world: World) -> None:
    """One allow is enough within an account, and any deny refuses."""

    program = await world.install.add_program(world.account, "few")
    visitor = world.install.connect()
    visitor.headers.update(bearer(program.access_token))
    assert (await visitor.get(world.images)).status_code == 403
    describe = let(program.crn, actions=("registry:DescribeImages",))
    policy = f"{world.path}/policy"
    assert (await world.control.put(policy, json=document(describe))).status_code == 200
    assert (await visitor.get(world.images)).status_code == 200
    denied = document({**describe, "effect": "deny"})
    assert (await world.control.put(policy, json=denied)).status_code == 200
    await world.install.say(program, allow("registry:DescribeImages"))
    assert (await visitor.get(world.images)).status_code == 403
    assert (await world.control.delete(policy)).status_code == 204
    assert (await visitor.get(world.images)).status_code == 200


async def test_what_is_wrong_with_a_tags_body_is_told_to_who_may_push(world: World) -> None:
    """All others get the answer that a right body gets, whatever else they may do."""
    image = await world.push_image("one", "v1")
    other = await make_world(world.install, "other")
    elsewhere = allow("registry:PushImage", on="crn:registry:local:acme:repository/elsewhere")
    programs = [
        await world.install.add_program(world.account, f"program-{number}", *statements)
        for number, statements in enumerate(
            [(), (allow("registry:DescribeImages"),), (elsewhere,), (allow("registry:PushImage"),)]
        )
    ]
    callers = [
        *((bearer(program.access_token), 403) for program in programs[:3]),
        (dict(other.control.headers), 404),
        (bearer(programs[3].access_token), 400),
    ]
    json, text = "application/json", "text/plain"
    bodies = [(b"{}", json), (b'{"digest": 1}', json), (b"{", json), (b"", json), (b"x", text)]
    path = f"{world.path}/tags/v1"
    for headers, status in callers:
        right = await world.control.put(path, json={"digest": image["digest"]}, headers=headers)
        assert right.status_code == (200 if status == 400 else status)
        for body, kind in bodies:
            sent = headers | {"content-type": kind}
            answer = await world.control.put(path, content=body, headers=sent)
            expected = 415 if (status, kind) == (400, text) else status
            assert answer.status_code == expected, (headers, body)
            if status != 400:
                assert answer.json()["error"]["message"] == right.json()["error"]["message"]
