"""Instance pools by requests: what is refused, whom a pool may act as, and how one is deleted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.compute import rows
from cloudcore.compute.instance_pool import Instance
from cloudcore.compute.rows import INSTANCE_ROWS
from cloudcore.db.base import Connection
from registry.settings.node import NodeSettings
from tests.databases import on_both_databases
from tests.integration.served_world import Served, open_served
from tests.tenants import Statement, allow, trust

PATH = "/v1/instance-pools"


async def create(served: Served, *, token: str = "", **body: object) -> tuple[int, Any]:
    given = {"name": "web", "image": "web:1", **body}
    answer = await served.ask("POST", PATH, given, token=token or served.acme.program_token)
    return answer.status_code, answer.json()


async def delete(served: Served, pool_id: str, token: str = "") -> int:
    token = token or served.acme.program_token
    answer = await served.ask("DELETE", f"{PATH}/{pool_id}", token=token)
    assert answer.status_code != 204 or answer.content == b""
    return answer.status_code


@on_both_databases
async def test_deletion_is_204_and_idempotent(served: Served) -> None:
    """PO1: repeat on a deleted pool is 204 (tombstone), a never-existing id 404."""
    status, made = await create(served)
    assert (status, made["instance_pool"]["status"]) == (202, "provisioning")
    pool_id = made["instance_pool"]["id"]
    get = partial(served.ask, "GET", f"{PATH}/{pool_id}", token=served.acme.program_token)
    assert await delete(served, pool_id) == 204
    assert (await get()).json()["instance_pool"]["status"] == "deleting"
    assert await delete(served, pool_id) == 204
    token = served.acme.program_token
    changed = await served.ask("PATCH", f"{PATH}/{pool_id}", {"size": 2}, token=token)
    assert changed.status_code == 409
    found = await served.database.read(rows.POOLS.get, served.acme.account_id, "local", pool_id)
    await served.database.write(rows.POOLS.remove, found, served.clock())
    assert (await get()).status_code == 404
    assert await delete(served, pool_id) == 204
    assert await delete(served, pool_id.upper()) == 204
    for never in (uuid7(), "nothing", "web"):
        assert await delete(served, never) == 404
    # Another account's is as one that never was, before and after.
    assert await delete(served, pool_id, served.globex.program_token) == 404
    a_day_later = served.clock() + 24 * 3600 * MICROSECONDS
    for now, forgotten in ((a_day_later - 60 * MICROSECONDS, 0), (a_day_later, 1)):
        assert await served.database.write(rows.forget_deleted, now) == forgotten
    assert await delete(served, pool_id) == 404


async def test_who_may_delete_nothing_is_not_told_what_was_deleted(served: Served) -> None:
    pool_id = (await create(served))[1]["instance_pool"]["id"]
    found = await served.database.read(rows.POOLS.get, served.acme.account_id, "local", pool_id)
    await served.database.write(rows.POOLS.remove, found, served.clock())
    token = await reader(served)
    assert await delete(served, pool_id, token) == 403


async def reader(served: Served, *statements: Statement) -> str:
    """Return the token of a program of acme that may read pools, and do what is said besides."""
    return await served.token_that_may(allow("compute:Get*", "compute:List*"), *statements)


WRONG: Final[dict[str, tuple[object, ...]]] = {
    "size": (21, -1),
    "memory_mb": (15,),
    "cpu_millis": (0,),
    "ports": ([0], [80, 80], list(range(1, 12))),
    "command": (["a\0b"], [""], ["x" * 4096] * 9),
    "environment": (
        *({"1A": "b"}, {"A": "b\0"}, {"A=B": "c"}, {"A": "x" * 33_000}),
        {f"A{number}": "" for number in range(101)},
    ),
    "security_groups": (["default"],),
    "image": ("", "registry.example.com/web:1", "web:1:2", "WEB"),
    "name": ("Web",),
    "role": ("not a role",),
    "subnet": ("crn:network:local:00000000-0000-0000-0000-000000000000:subnet/a",),
}


async def test_what_no_pool_can_have_and_what_stays_is_refused(served: Served) -> None:
    for field, values in WRONG.items():
        for value in values:
            body: dict[str, Any] = {field: value}
            status, error = await create(served, **body)
            assert (status, error["error"]["code"]) == (400, "INVALID_INPUT"), body
            named = error["error"]["params"].get("field", field)
            assert named.partition("[")[0] in (field, "body")  # no document has NUL
    path = f"{PATH}/{served.acme.ids[PATH + '/{}']}"
    for field in ("name", "ports", "role", "subnet", "node", "status"):
        changed = {field: [80] if field == "ports" else "x"}
        answer = await served.ask("PATCH", path, changed, token=served.acme.program_token)
        assert answer.status_code == 400
        assert answer.json()["error"]["params"]["reason"] == "unknown_field"


async def test_a_change_says_at_once_what_is_wanted(served: Served) -> None:
    path, token = f"{PATH}/{served.acme.ids[PATH + '/{}']}", served.acme.program_token
    body = {"size": 3, "command": ["run", "-v"], "environment": {"A": "b"}, "memory_mb": 128}
    changed = (await served.ask("PATCH", path, body, token=token)).json()["instance_pool"]
    assert {name: changed[name] for name in body} == body
    assert changed["image_digest"] is None
    cleared = {"command": None, "environment": None, "memory_mb": None}
    changed = (await served.ask("PATCH", path, cleared, token=token)).json()["instance_pool"]
    assert {name: changed[name] for name in cleared} == {
        "command": [],
        "environment": {},
        "memory_mb": 256,
    }


async def test_a_role_is_given_by_who_may_pass_it_and_trusts_instances(served: Served) -> None:
    token = served.acme.program_token
    named = {"name": "runs", "trust_policy": trust("crn:iam:::service/compute")}
    role = await served.make("/v1/roles", named, token=token)
    status, made = await create(served, role="runs")
    shown = {"id": role["id"], "crn": role["crn"], "name": "runs"}
    assert (status, made["instance_pool"]["role"]) == (202, shown)
    status, error = await create(served, name="other", role="role")
    assert (status, error["error"]["params"]["reason"]) == (400, "not_trusted")
    status, _ = await create(served, name="other", role="nobody")
    assert status == 404
    other = await reader(served, allow("compute:*"))
    status, error = await create(served, name="other", role="runs", token=other)
    assert (status, error["error"]["code"]) == (403, "ACCESS_DENIED")
    path = f"{PATH}/{made['instance_pool']['id']}"
    for body in ({"image": "mine:1"}, {"command": ["x"]}, {"environment": {"LD_PRELOAD": "x"}}):
        answer = await served.ask("PATCH", path, body, token=other)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ACCESS_DENIED")
        assert (await served.ask("PATCH", path, body, token=token)).status_code < 300
    assert (await served.ask("PATCH", path, {"size": 2}, token=other)).status_code < 300


@on_both_databases
async def test_a_pool_is_on_the_machine_of_its_subnet(served: Served) -> None:
    token = served.acme.program_token
    status, made = await create(served, subnet="subnet-0")
    pool = made["instance_pool"]
    assert (status, pool["subnet"]["name"], pool["security_groups"]) == (202, "subnet-0", [])
    assert pool["node"] == NodeSettings().name
    vpc = (await served.ask("GET", "/v1/vpcs?name=vpc-0", token=token)).json()["vpcs"][0]["id"]
    groups = (await served.ask("GET", "/v1/security-groups", token=token)).json()
    (group,) = (
        each
        for each in groups["security_groups"]
        if each["vpc"]["id"] == vpc and each["is_default"]
    )
    path = f"{PATH}/{pool['id']}"
    named = {"security_groups": [group["name"]]}
    changed = (await served.ask("PATCH", path, named, token=token)).json()["instance_pool"]
    assert [each["id"] for each in changed["security_groups"]] == [group["id"]]
    emptied = await served.ask("PATCH", path, {"security_groups": []}, token=token)
    assert emptied.status_code == 400


async def test_compute_is_off_until_the_operator_sets_a_driver(tmp_path: Path) -> None:
    """The refusal names the setting."""
    with pytest.raises(AssertionError, match="compute_driver"):
        async with open_served(tmp_path / "data", node=NodeSettings(balancer_vips="192.0.2.0/24")):
            pass


async def test_instances_are_shown_with_their_pool_and_no_environment(served: Served) -> None:
    ids, token = served.acme.ids, served.acme.program_token
    path = f"{PATH}/{ids[PATH + '/{}']}/instances"
    page = (await served.ask("GET", path, token=token)).json()
    (shown,) = page["instances"]
    assert page["meta"]["total"] == 1
    assert shown["id"] == ids[PATH + "/{}/instances/{}"]
    assert shown["pool"]["name"] == "instance-pool-0"
    assert not {"environment", "version", "command"} & shown.keys()
    one = (await served.ask("GET", f"{path}/{shown['id']}", token=token)).json()
    assert one == {"instance": shown}
    other = (await create(served))[1]["instance_pool"]["id"]
    for each in ("", "/logs"):
        asked = f"{PATH}/{other}/instances/{shown['id']}{each}"
        assert (await served.ask("GET", asked, token=token)).status_code == 404


async def test_the_output_of_another_machine_is_named(served: Served) -> None:
    def move(tx: Connection) -> Instance:
        ids = served.acme.ids
        found = INSTANCE_ROWS.lock(tx, served.acme.account_id, ids[PATH + "/{}/instances/{}"])
        moved = {name: getattr(found, name) for name in found.__struct_fields__}
        return INSTANCE_ROWS.save(tx, Instance(**moved | {"node": "elsewhere"}))

    await served.database.write(move)
    ids = served.acme.ids
    path = f"{PATH}/{ids[PATH + '/{}']}/instances/{ids[PATH + '/{}/instances/{}']}/logs"
    with pytest.raises(AssertionError, match=r"503|the machine elsewhere has the output"):
        await served.ask("GET", path, token=served.acme.program_token)
    for tail in ("0", "10000001", "x"):
        asked = await served.ask("GET", f"{path}?tail={tail}", token=served.acme.program_token)
        assert asked.status_code == 400
