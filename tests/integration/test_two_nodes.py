"""Two processes of ``entrepot serve`` with one PostgreSQL: nothing that matters is in one alone."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.postgresql_watch import KNOWN_SECONDS
from tests.entrepot import ADMIN
from tests.loaded import ENTREPOT, program_environment, run_loaded
from tests.nodes import (
    MANIFEST,
    NODES,
    LiveFleet,
    LiveNode,
    digest_of,
    initialized_fleet,
    place_of,
    with_query,
)
from tests.postgresql import free_port
from tests.waiting import until

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(300)]

LAYER: Final = b"a layer " * 4000
MOST_STALE_SECONDS: Final = 2 * KNOWN_SECONDS
"""Twice the time that is promised: a request that begins later is never given an older answer,
however busy the machine is."""


@pytest.fixture(scope="module")
def fleet(
    postgresql_url: str, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveFleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with initialized_fleet(folder, postgresql_url, migrated_template) as made:
        made.start_all(*NODES)
        yield made


@pytest.fixture
def east(fleet: LiveFleet) -> LiveNode:
    return fleet.nodes["east"]


@pytest.fixture
def west(fleet: LiveFleet) -> LiveNode:
    return fleet.nodes["west"]


def unused_repository() -> str:
    return f"acme/app-{uuid7()[-12:]}"


def test_an_upload_begun_on_one_node_goes_on_and_ends_on_the_other(
    east: LiveNode, west: LiveNode
) -> None:
    repository = unused_repository()
    signed = east.bearer(repository)  # of one node, taken by both
    begun = east.data_plane("POST", f"/v2/{repository}/blobs/uploads/", signed)
    place, parts = place_of(begun), [LAYER[:20_000], LAYER[20_000:30_000], LAYER[30_000:]]
    received = 0
    for node, part in zip((east, west, east), parts, strict=True):
        stands = f"{received}-{received + len(part) - 1}"
        answer = node.data_plane(
            "PATCH", place, signed, content=part, headers={"Content-Range": stands}
        )
        assert answer.status_code == 202, answer.text
        place, received = place_of(answer), received + len(part)
        assert answer.headers["Range"] == f"0-{received - 1}"
    put = west.data_plane("PUT", with_query(place, {"digest": digest_of(LAYER)}), signed)
    assert put.status_code == 201, put.text
    for node in (east, west):
        pulled = node.data_plane("GET", f"/v2/{repository}/blobs/{digest_of(LAYER)}", signed)
        assert pulled.content == LAYER


def test_a_kept_answer_of_one_node_is_not_given_after_a_change_on_the_other(
    fleet: LiveFleet, east: LiveNode, west: LiveNode
) -> None:
    """Also while the connection breaks again and again by which a node hears of commits."""
    repository = unused_repository()
    signed = east.bearer(repository)
    digests = [east.push_image(repository, signed, "now", str(number)) for number in range(3)]
    bodies = [east.manifest(repository, signed, each).content for each in digests]
    with (
        psycopg.connect(fleet.database, autocommit=True) as connection,
        pulling(west, repository, signed) as pulled,
    ):
        for number in range(6):
            wanted = digests[number % 3]
            if number > 1:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE query LIKE '%pg_current_snapshot()%' AND pid <> pg_backend_pid()"
                )
            east.put_manifest(repository, signed, "now", bodies[number % 3])
            assert east.digest_of_tag(repository, signed, "now") == wanted
            known_at = time.monotonic() + MOST_STALE_SECONDS
            until(lambda moment=known_at: pulled[-1][0] > moment)  # type: ignore[misc]
            late = {digest for begun, digest in pulled if begun > known_at}
            assert late == {wanted}, "an answer from before was given too late"
    seen = [digest for digest, _ in groupby(digest for _, digest in pulled)]
    assert seen == [digests[2], *(digests[number % 3] for number in range(6))], "it went back"


@contextmanager
def pulling(
    node: LiveNode, repository: str, signed: Mapping[str, str]
) -> Iterator[list[tuple[float, str]]]:
    """Pull a tag again and again meanwhile; give when each pull began, and the digest it got."""
    found: list[tuple[float, str]] = []
    is_over = threading.Event()

    def pull() -> None:
        headers = {**signed, "Accept": MANIFEST}
        with httpx.Client(base_url=node.url, headers=headers, timeout=60) as client:
            while not is_over.wait(0.01):
                begun = time.monotonic()
                answer = client.get(f"/v2/{repository}/manifests/now")
                assert answer.status_code == 200, answer.text
                found.append((begun, answer.headers["Docker-Content-Digest"]))

    with ThreadPoolExecutor(1) as pool:
        pulls = pool.submit(pull)
        try:
            until(lambda: len(found) > 2 or pulls.done())
            yield found
        finally:
            is_over.set()
            pulls.result()


def test_what_is_revoked_on_one_node_is_refused_by_the_other(
    fleet: LiveFleet, east: LiveNode, west: LiveNode
) -> None:
    name = f"ci-{uuid7()[-12:]}"
    made = east.call("POST", "/v1/service-accounts", {"name": name})["service_account"]
    keys = f"/v1/service-accounts/{made['id']}/access-keys"
    key = west.call("POST", keys)["access_key"]
    document = {
        "version": "1",
        "statements": [{"effect": "allow", "actions": ["*"], "resources": ["*"]}],
    }
    policy = east.call("POST", "/v1/policies", {"name": name, "document": document})["policy"]
    attachments = f"/v1/policies/{policy['id']}/attachments"
    attached = west.call("POST", attachments, {"service_account": made["id"]})["attachment"]
    answer = httpx.post(
        f"{west.url}/v1/oauth/token",
        data={"grant_type": "client_credentials"},
        auth=(key["access_key_id"], key["secret_access_key"]),
        timeout=60,
    )
    signed = {"Authorization": f"Bearer {answer.json()['access_token']}"}

    def listed(node: LiveNode) -> int:
        return httpx.get(f"{node.url}/v1/queues", headers=signed, timeout=60).status_code

    assert [listed(east), listed(west)] == [200, 200]
    east.call("DELETE", f"{attachments}/{attached['id']}")
    assert listed(west) == 403
    west.call("DELETE", f"{keys}/{key['id']}")
    assert listed(east) == 401


def test_a_key_disabled_on_one_node_opens_nothing_on_the_other(
    east: LiveNode, west: LiveNode
) -> None:
    key = east.call("POST", "/v1/keys", {"name": f"k-{uuid7()[-12:]}"})["key"]
    sealed = west.call("POST", f"/v1/keys/{key['id']}/encrypt", {"plaintext": "aGVsbG8="})
    opening = {"ciphertext": sealed["ciphertext"]}
    for node in (east, west):
        opened = node.call("POST", f"/v1/keys/{key['id']}/decrypt", opening)
        assert opened["plaintext"] == "aGVsbG8="
    east.call("POST", f"/v1/keys/{key['id']}/disable")
    refused = west.ask("POST", f"/v1/keys/{key['id']}/decrypt", opening)
    assert refused.status_code == 409, refused.text


def test_an_idempotency_key_counts_on_both(east: LiveNode, west: LiveNode) -> None:
    body, header = {"name": f"jobs-{uuid7()[-12:]}"}, {"Idempotency-Key": uuid7()}
    first = east.ask("POST", "/v1/queues", body, **header)
    again = west.ask("POST", "/v1/queues", body, **header)
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    other = west.ask("POST", "/v1/queues", {"name": "another"}, **header)
    assert other.json()["error"]["code"] == "IDEMPOTENCY_KEY_REUSED"


def test_a_message_sent_on_one_node_wakes_who_waits_on_the_other(
    east: LiveNode, west: LiveNode
) -> None:
    queue = east.call("POST", "/v1/queues", {"name": f"wake-{uuid7()[-12:]}"})["queue"]
    messages = f"/v1/queues/{queue['id']}/messages"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(west.call, "POST", f"{messages}/lease", {"wait_seconds": 20})
        east.call("POST", messages, {"messages": [{"body": "hello"}]})
        (leased,) = waiting.result()["messages"]
    assert leased["body"] == "hello"
    assert east.call("POST", f"{messages}/lease", {})["messages"] == []


def test_requests_to_both_count_in_one_window(east: LiveNode, west: LiveNode) -> None:
    def statuses(node: LiveNode, times: int) -> list[int]:
        with httpx.Client(base_url=node.url, timeout=60) as client:
            return [client.get("/v1/prices").status_code for _ in range(times)]

    assert statuses(east, 40) == [200] * 40
    assert statuses(west, 21) == [200] * 20 + [429]
    assert statuses(east, 1) == [429]


def test_wrong_passwords_at_both_count_together(east: LiveNode, west: LiveNode) -> None:
    """And the state of a sign-in, which is in its form, is taken by the other node."""

    def attempt(shown: LiveNode, posted: LiveNode) -> int:
        page = (
            "/v1/oauth/authorize?response_type=code&client_id=cli&state=s"
            "&redirect_uri=urn:ietf:wg:oauth:2.0:oob&code_challenge_method=S256"
            "&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWjmAlgxYwxzk"
        )
        with httpx.Client(timeout=60) as browser:
            form = re.search(r'name="form" value="([^"]*)"', browser.get(shown.url + page).text)
            assert form is not None
            fields = {"form": form[1], "email": ADMIN, "password": "wrong"}
            return browser.post(f"{posted.url}/v1/oauth/authorize", data=fields).status_code

    assert [attempt(east, west) for _ in range(5)] == [403] * 5
    assert [attempt(west, east) for _ in range(5)] == [403] * 5
    assert [attempt(east, east), attempt(east, west)] == [429] * 2


def test_runs_begun_through_both_are_done_once_and_seen_by_both(
    fleet: LiveFleet, east: LiveNode, west: LiveNode
) -> None:
    begun = [
        run
        for node in (east, west)
        for run in node.call("POST", "/v1/garbage-collection/runs").values()
    ]

    def statuses(node: LiveNode) -> set[str]:
        path = "/v1/garbage-collection/runs"
        found = [node.call("GET", f"{path}/{each['id']}")["run"]["status"] for each in begun]
        return {str(each) for each in found}

    until(lambda: statuses(west) == {"succeeded"}, seconds=90)
    assert statuses(east) == {"succeeded"}
    runs = {each["id"] for each in begun}  # one that is asked for while one goes on is that one
    with psycopg.connect(fleet.database) as connection:
        for run_id in runs:
            jobs = connection.execute(
                "SELECT state FROM jobs WHERE arguments LIKE %s", [f"%{run_id}%"]
            ).fetchall()
            assert jobs == [("succeeded",)]


def test_a_node_that_differs_does_not_start(fleet: LiveFleet, tmp_path: Path) -> None:
    """In a setting, by its name, its root key, its buckets or its blobs."""
    shared = fleet.folder / "shared"
    other = [tmp_path / each for each in ("key", "buckets", "blobs")]
    for each in other:
        each.mkdir(mode=0o700)
    (other[0] / "root.key").write_bytes(b"k" * 32)
    (other[0] / "root.key").chmod(0o600)
    (other[2] / "buckets").symlink_to(shared / "buckets")
    key = {"ENTREPOT_ROOT_KEY_FILE": str(shared / "root.key")}
    settings = {"ENTREPOT_SEALING": "off", "ENTREPOT_DATABASE_PORTS": "30000-30009"}
    cases: Sequence[tuple[Path, Mapping[str, str], str]] = (
        (other[2], key, "has not the blobs of the nodes that run (east, west)"),
        (fleet.data_of("north"), settings, "(east, west): database_ports is '30000-30009', not"),
        (fleet.data_of("east-2"), {"ENTREPOT_NODE_NAME": "west"}, "another machine runs as 'west'"),
        (other[0], {}, "root key"),
        (other[1], key, "buckets is 'the folder "),
    )
    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(start_refused, fleet, *case[:2]) for case in cases]
    for refused, (_, variables, words) in zip(
        (each.result() for each in started), cases, strict=True
    ):
        assert refused.returncode == 2
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert ("sealing is 'off', not 'on'" in refused.stderr) == (variables == settings)


def test_a_node_that_leaves_is_not_ready_and_serves_on(fleet: LiveFleet, east: LiveNode) -> None:
    """And it does not count as one that runs once it has stopped in order."""
    south = fleet.start("south", "--drain-seconds", "3600")
    assert south.readiness().status_code == 200
    south.registry.process.send_signal(signal.SIGTERM)
    until(lambda: south.readiness().status_code == 503)
    assert south.readiness().json() == {
        "server": "it is about to stop: send requests elsewhere",
        "database": "ok",
        "reads": "ok",
        "writes": "ok",
    }
    assert south.ask("GET", "/v1/queues").status_code == 200
    assert east.readiness().status_code == 200
    assert south.registry.stop() == 0
    started = start_refused(fleet, fleet.data_of("north"), {"ENTREPOT_SEALING": "off"})
    assert "(east, west): sealing" in started.stderr


def start_refused(
    fleet: LiveFleet, data: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    settings = {**fleet.environment, "ENTREPOT_NODE_NAME": "north", **variables}
    words = ("serve", "--port", str(free_port()), "--data", str(data))
    return run_loaded(ENTREPOT, words, {**program_environment(), **settings}, timeout=110)
