"""``…/lifecycle-policy`` on the control plane: the document, the preview, the runs."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any, Final

from cloudcore.wire import rfc3339
from registry.services.lifecycle.preview import Previews
from registry.services.lifecycle.rules import LifecycleRule, check_rules
from registry.services.lifecycle.runs import start_due_runs
from tests.databases import on_both_databases
from tests.integration.lifecycle_world import DAY, LifecycleWorld
from tests.integration.pushing import refused
from tests.tenants import Install

UNTAGGED: Final = {"priority": 1, "selector": "untagged", "older_than_days": 7}
CI: Final = {
    "priority": 2,
    "description": "what nobody released",
    "selector": "tagged",
    "tag_prefixes": ["ci-"],
    "keep_last": 1,
}


async def test_a_policy_from_its_making_to_its_end(lifecycle: LifecycleWorld) -> None:
    control, path = lifecycle.control, lifecycle.policy
    for answer in (
        await control.get(path),
        await control.delete(path),
        await control.post(f"{path}/preview"),
        await control.post(f"{path}/preview", json={}),
        await control.post(f"{path}/runs"),
    ):
        refused(answer, 404, "NOT_FOUND")
    made = await lifecycle.put(UNTAGGED, CI)
    repository = (made["repository"]["id"], made["repository"]["name"])
    assert repository == (lifecycle.repository_id, "app")
    assert (made["revision"], len(made["rules"])) == (1, 2)
    assert made["rules"][1] == CI | {
        "action": "expire",
        "tag_patterns": [],
        "older_than_days": None,
        "not_pulled_for_days": None,
    }
    assert (await control.get(path)).json() == {"lifecycle_policy": made}

    lifecycle.install.clock.advance(60)
    again = await lifecycle.put(*made["rules"][:1])
    assert again["revision"] == 2
    assert again["next_run_at"] == made["next_run_at"]
    assert again["updated_at"] > made["updated_at"]
    assert (await control.delete(path)).status_code == 204
    refused(await control.get(path), 404, "NOT_FOUND")
    assert (await lifecycle.put(CI))["revision"] == 3


_UNKNOWN: Final = ("rules[0].NotAction", "unknown_field")
_LONG: Final = ["a", *["b" * 120] * 99]
_NO_LIST: Final[tuple[object, ...]] = (None, {}, "x" * 21_000)
_KEEPING: Final = {"selector": "any", "keep_last": 1}
BAD_DOCUMENTS: Final[tuple[tuple[object, str | None, str | None], ...]] = (
    (b"", "body", None),
    (b"{", "body", "not_json"),
    (b'{"rules": [], "rules": []}', "body", "duplicate_key"),
    ([], "body", "wrong_type"),
    ({}, "rules", "missing"),
    *(({"rules": wrong}, "rules", "wrong_type") for wrong in _NO_LIST),
    ({"rules": []}, "rules", "out_of_range"),
    ({"rules": [{}], "Rules": []}, None, None),
    ({"rules": [{"priority": 1, "selector": "any"}]}, "rules[0]", "missing"),
    ({"rules": [{"priority": 1, "selector": "any", "NotAction": 1}]}, *_UNKNOWN),
    ({"rules": [{"priority": 1, **_KEEPING}] * 2}, "rules[1].priority", "duplicate"),
    (
        {"rules": [{**CI, "priority": number, "tag_prefixes": _LONG} for number in (1, 2)]},
        *("rules", "out_of_range"),
    ),
)


async def test_a_bad_document_is_refused_whole(lifecycle: LifecycleWorld) -> None:
    """Never ignored, neither where it is stored nor where it is only tried."""
    kind = {"content-type": "application/json"}
    for document, field, reason in BAD_DOCUMENTS:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        answer = await lifecycle.control.put(lifecycle.policy, content=body, headers=kind)
        params = refused(answer, 400, "INVALID_INPUT", field, about=body)
        assert reason in (None, params["reason"]), body
        if body and document not in ({}, {"rules": None}):
            path = f"{lifecycle.policy}/preview"
            tried = await lifecycle.control.post(path, content=body, headers=kind)
            refused(tried, 400, "INVALID_INPUT", field, about=body)
    refused(await lifecycle.control.get(lifecycle.policy), 404, "NOT_FOUND")


@on_both_databases
async def test_a_preview_names_what_a_run_then_takes(lifecycle: LifecycleWorld) -> None:
    push = lifecycle.push_image
    first, second = await push("1", "ci-1"), await push("22", "ci-2", "ci-2b")
    signature = await push("333", subject=first, artifactType="application/x-signature")
    dangling = await push("4444")
    await lifecycle.pass_days(8)
    expected = {first["digest"]: 2, signature["digest"]: 2, dangling["digest"]: 1}
    found = await lifecycle.preview(UNTAGGED, CI)
    assert {image["digest"]: image["rule"] for image in found["images"]} == expected
    by_digest = {image["digest"]: image for image in found["images"]}
    one, other = by_digest[first["digest"]], by_digest[signature["digest"]]
    assert (one["tags"], one["expires_with"]) == (["ci-1"], None)
    assert (other["tags"], other["expires_with"]) == ([], first["digest"])
    assert other["artifact_type"] == "application/x-signature"
    ids = [image["id"] for image in found["images"]]
    assert ids == sorted(ids, reverse=True)
    assert found["summary"] == {
        "evaluated": 4,
        "expired": found["meta"]["total"],
        "expired_by_rule": {"1": 1, "2": 2},
        "kept_by_rule": {"2": 1},
        "freed_bytes": 1 + 3 + 4,  # the config is that of the second, too
        "as_of": found["summary"]["as_of"],
    }
    assert found["meta"]["total"] == 3
    assert len(await lifecycle.digests()) == 4
    refused(await lifecycle.control.get(lifecycle.policy), 404, "NOT_FOUND")

    run = await lifecycle.run(UNTAGGED, CI)
    assert run["status"] == "succeeded"
    assert run["started_by"].startswith("crn:iam::")
    assert run["fault"] is None
    assert (run["evaluated"], run["expired"], run["freed_bytes"]) == (4, 3, 8)
    assert run["started_at"] < run["finished_at"]
    assert await lifecycle.digests() == {second["digest"]}
    assert await lifecycle.previewed() == {}

    deleted = (await lifecycle.get("/images/deleted"))["images"]
    assert {image["digest"] for image in deleted} == expected.keys()
    assert {image["deleted_by"] for image in deleted} == {
        f"crn:registry:local:{lifecycle.account.id}:lifecycle-run/{run['id']}"
    }


@on_both_databases
async def test_a_preview_page_by_page_is_of_one_moment(lifecycle: LifecycleWorld) -> None:
    for number in range(7):
        await lifecycle.push_image(str(number), f"ci-{number}")
    await lifecycle.pass_days(1)
    whole = await lifecycle.preview(CI)
    assert len(whole["images"]) == 6
    found: list[Any] = []
    marker: dict[str, str] = {}
    for size in (3, 3):
        page = await lifecycle.preview(CI, limit=3, **marker)
        assert len(page["images"]) == size
        found += page["images"]
        marker = {"marker": page["meta"].get("marker")}
        # What comes meanwhile is not in the pages to come.
        await lifecycle.push_image(f"later {len(found)}", f"ci-later-{len(found)}")
    assert page["meta"] == {"total": 6, "limit": 3, "has_more": False}
    assert found == whole["images"]

    page = await lifecycle.preview(CI, limit=3)
    marker = {"marker": page["meta"]["marker"]}
    other = CI | {"keep_last": 2}
    answer = await lifecycle.control.post(
        f"{lifecycle.policy}/preview", json={"rules": [other]}, params=marker
    )
    refused(answer, 400, "INVALID_INPUT", "marker")
    for query in ({"limit": "0"}, {"limit": "201"}, {"marker": "x"}):
        answer = await lifecycle.control.post(f"{lifecycle.policy}/preview", params=query)
        refused(answer, 404, "NOT_FOUND")  # it has no policy; what is asked of none is nothing
        answer = await lifecycle.control.post(
            f"{lifecycle.policy}/preview", json={"rules": [CI]}, params=query
        )
        refused(answer, 400, "INVALID_INPUT")


@on_both_databases
async def test_runs_are_listed_and_one_runs_at_a_time(lifecycle: LifecycleWorld) -> None:
    await lifecycle.put(UNTAGGED)
    control = lifecycle.control
    first = (await control.post(f"{lifecycle.policy}/runs")).json()["run"]
    joined = (await control.post(f"{lifecycle.policy}/runs")).json()["run"]
    assert first == joined
    assert (first["status"], first["finished_at"]) == ("running", None)
    await lifecycle.work()
    ids = [first["id"]]
    ids += [(await lifecycle.run())["id"] for _ in range(2)]
    page = await control.get(f"{lifecycle.policy}/runs", params={"limit": 2})
    assert [run["id"] for run in page.json()["runs"]] == ids[:0:-1]
    assert page.json()["meta"]["total"] == 3
    marker = page.json()["meta"]["marker"]
    rest = await control.get(f"{lifecycle.policy}/runs", params={"limit": 2, "marker": marker})
    assert [run["id"] for run in rest.json()["runs"]] == ids[:1]

    await lifecycle.pass_days(91)
    last = await lifecycle.run()
    assert [run["id"] for run in await lifecycle.runs()] == [last["id"]]


async def test_a_run_is_found_by_its_id(lifecycle: LifecycleWorld) -> None:
    await lifecycle.put(UNTAGGED)
    control = lifecycle.control
    answer = await control.post(f"{lifecycle.policy}/runs")
    started, place = answer.json(), answer.headers["location"]
    assert place == f"{lifecycle.policy}/runs/{started['run']['id']}"
    assert (await control.get(place)).json() == started
    await lifecycle.work()
    (listed,) = await lifecycle.runs()
    assert (await control.get(place)).json() == {"run": listed}
    assert listed["status"] == "succeeded"

    other = (await control.post("/v1/repositories", json={"name": "other"})).json()
    elsewhere = f"/v1/repositories/{other['repository']['id']}/lifecycle-policy/runs"
    for path in (
        f"{elsewhere}/{listed['id']}",
        f"{lifecycle.policy}/runs/{lifecycle.repository_id}",
        f"{lifecycle.policy}/runs/latest",
    ):
        refused(await control.get(path), 404, "NOT_FOUND")
    assert (await control.delete(lifecycle.policy)).status_code == 204
    assert (await control.get(place)).json() == {"run": listed}  # what was done was done


async def test_the_first_run_is_a_day_away(lifecycle: LifecycleWorld) -> None:
    before = lifecycle.install.clock.now
    made = await lifecycle.put(UNTAGGED)
    assert made["next_run_at"] > rfc3339(before + DAY * 1_000_000)
    assert made["next_run_at"] < rfc3339(before + (DAY + 1) * 1_000_000)


async def test_a_clock_that_was_wrong_holds_up_no_policy_put_again(
    lifecycle: LifecycleWorld,
) -> None:
    clock = lifecycle.install.clock
    right = await lifecycle.put(UNTAGGED)
    clock.advance(365 * DAY)
    await start_due_runs(lifecycle.install.ctx)
    clock.advance(-365 * DAY)
    stored = (await lifecycle.control.get(lifecycle.policy)).json()["lifecycle_policy"]
    assert stored["next_run_at"] > right["next_run_at"]
    again = await lifecycle.put(UNTAGGED)
    assert again["next_run_at"] < rfc3339(clock.now + (DAY + 60) * 1_000_000)


async def test_requests_of_one_preview_at_once_compute_it_once(install: Install) -> None:
    repository = await install.add_repository(await install.add_account("acme"), "r")
    document = check_rules([LifecycleRule(priority=1, selector="any", keep_last=1)])
    previews = Previews()

    ask = partial(previews.get, install.database, repository, document, install.clock())
    first, second = await asyncio.gather(ask(), ask())
    assert first is second
