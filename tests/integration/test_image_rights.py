"""Images of other repositories, the repository's own policy, and bodies of tags."""

from __future__ import annotations

from tests.integration.pushing import World, make_world, refused, signed_in
from tests.tenants import allow, bearer, document, let


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


async def test_the_repositorys_own_policy_counts_for_its_account_too(world: World) -> None:
    """One allow is enough within an account, and any deny refuses."""

    program = await world.install.add_program(world.account, "few")
    visitor = signed_in(world.install, program)
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
