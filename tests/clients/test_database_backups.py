"""A database cluster of a served install is backed up, wiped and restored, also to a moment."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest

from tests.clients.docs_shell import commands_of, shell, write_program
from tests.database_install import database_install
from tests.entrepot import Home, Install
from tests.loaded import ENTREPOT, script_line
from tests.tools import require_tool

pytestmark = pytest.mark.timeout(600)
_SEEN: Final = "SELECT count(*), md5(string_agg(things::text, ',' ORDER BY n)) FROM things"


class Tenant:
    """The admin, by the API and by the command line."""

    def __init__(self, install: Install, home: Home, folder: Path) -> None:
        self.home, self._folder = home, folder
        self._install = install
        assert install.sign_in_by_key(home).returncode == 0
        self.passwords: dict[str, str] = {}

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        token = self.home.stored()[self._install.url]
        access = next(iter(each for each in token.values() if "access_token" in each))
        headers = {"Authorization": f"Bearer {access['access_token']}"}
        url = f"{self._install.url}/v1{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=60)

    def make(self, path: str, body: object) -> dict[str, Any]:
        """Send what is answered by 201 or 202; return the answer."""
        answer = self.ask("POST", path, body)
        assert answer.status_code in (201, 202), answer.text
        made: dict[str, Any] = answer.json()
        if "password" in made:
            self.passwords[made["cluster"]["id"]] = made["password"]
        return made

    def until(self, path: str, one: str, **fields: object) -> dict[str, Any]:
        """Wait until fields of a record are so; return it."""
        while True:
            found: dict[str, Any] = self.ask("GET", path).json()[one]
            if fields.items() <= found.items():
                return found
            assert found["status"] != "failed", found
            time.sleep(0.1)

    def cluster(self, made: dict[str, Any]) -> dict[str, Any]:
        return self.until(f"/clusters/{made['cluster']['id']}", "cluster", status="active")

    def backup(self, cluster: dict[str, Any], kind: str) -> dict[str, Any]:
        """Make a backup, and wait for its end."""
        path = f"/clusters/{cluster['id']}/backups"
        made = self.make(path, {"kind": kind})["backup"]
        return self.until(f"{path}/{made['id']}", "backup", status="succeeded")

    def sql(self, cluster: dict[str, Any], *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the owner, over TLS with the roots that the cluster shows."""
        found = cluster["connection"]
        roots = self._folder / f"{cluster['id']}.pem"
        roots.write_text(found["ca"])
        with closing(
            psycopg.connect(
                host=found["host"],
                port=found["port"],
                dbname=found["database"],
                user=found["username"],
                password=self.passwords[cluster["id"]],
                sslmode="verify-full",
                sslrootcert=str(roots),
                autocommit=True,
            )
        ) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Install, Path]]:
    with database_install() as made:
        yield made


@pytest.fixture
def tenant(served: tuple[Install, Path]) -> Iterator[Tenant]:
    install, folder = served
    made = Tenant(install, Home(folder / "home"), folder)
    yield made
    for each in made.ask("GET", "/clusters?limit=200").json()["clusters"]:
        made.ask("DELETE", f"/clusters/{each['id']}?cascade=true")
    while made.ask("GET", "/clusters").json()["clusters"]:
        time.sleep(0.1)


def test_the_commands_of_the_page_work(served: tuple[Install, Path], workspace: Path) -> None:
    """Those of ``docs/how-to/databases.md`` run in their order, with servers that really run."""
    for name in ("jq", "psql"):
        require_tool(name)
    programs, (install, folder) = workspace / "programs", served
    write_program(programs, "entrepot", script_line(ENTREPOT))
    home = Home(folder / "home-of-page")
    assert install.sign_in_by_key(home).returncode == 0
    environment = {**home.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with shell(workspace, environment) as started:
        for command in commands_of("docs/how-to/databases.md"):
            started.run(command, "of a role elsewhere\n" if "--password" in command else "")
        assert len(started.done) > 15
        # What is deleted on the way ends before the service does.
        started.run("entrepot clusters delete legacy --yes")
        started.run("while entrepot clusters list --quiet | grep .; do sleep 0.5; done")


def test_rows_are_the_same_after_a_wipe_and_a_restore_also_to_a_moment(tenant: Tenant) -> None:
    tenant.make("/buckets", {"name": "of-shop"})
    # Files of tests may lie in memory, and count as the server's that writes them.
    size = {"memory_mb": 2048, "cpu_millis": 2000, "disk_mb": 1024}
    cluster = tenant.cluster(
        tenant.make("/clusters", {"name": "shop", "size": size, "bucket": "of-shop"})
    )
    tenant.sql(
        cluster,
        "CREATE TABLE things AS SELECT n, md5(n::text) AS said FROM generate_series(1, 5000) AS n",
    )
    base = tenant.backup(cluster, "full")
    assert (base["kind"], base["progress"], base["verification"]) == ("base", 100, "never")
    assert base["size_bytes"] > base["stored_bytes"] > 0
    tenant.sql(cluster, "INSERT INTO things SELECT -n, 'more' FROM generate_series(1, 100) AS n")
    incremental = tenant.backup(cluster, "incr")
    assert (incremental["kind"], incremental["base_id"]) == ("incremental", base["id"])
    assert incremental["stored_bytes"] < base["stored_bytes"]
    of_incremental = tenant.sql(cluster, _SEEN)
    (moment,) = tenant.sql(cluster, "DELETE FROM things WHERE n = 7", "SELECT clock_timestamp()")[0]
    of_moment = tenant.sql(cluster, _SEEN)
    wal = "AS SELECT md5(n::text) AS said FROM generate_series(1, 300000) AS n"
    # The wipe; and so much WAL after it that what tells of it is archived at once.
    tenant.sql(cluster, "DROP TABLE things", f"CREATE TABLE a {wal}", f"CREATE TABLE b {wal}")

    # All three go on at once.
    verified = f"/clusters/{cluster['id']}/backups/{incremental['id']}"
    ended = tenant.home.run("backups", "verify", "shop", incremental["id"])
    assert ended.returncode == 0, ended.stderr
    of_backup = tenant.make(f"{verified}/restore", {"name": "of-backup", "size": size})
    at = moment.astimezone(UTC).isoformat()
    ended = tenant.home.run(
        "clusters", "restore", "shop", "of-moment", "--at", at, "--output", "json"
    )
    assert ended.returncode == 0, ended.stderr
    made = httpx.Response(200, text=ended.stdout).json()
    tenant.passwords[made["cluster"]["id"]] = made["password"]
    found = tenant.until(verified, "backup", verification="succeeded")
    assert found["verified_at"] is not None
    assert tenant.sql(tenant.cluster(of_backup), _SEEN) == of_incremental
    of_time = tenant.cluster(made)
    assert tenant.sql(of_time, _SEEN) == of_moment
    assert of_time["source"]["target_time"]

    window = {"name": "never", "target_time": "2020-01-01T00:00:00Z"}
    refused = tenant.ask("POST", f"/clusters/{cluster['id']}/restore", window)
    assert refused.status_code == 409
    assert refused.json()["error"]["params"]["earliest"] == base["completed_at"]
    refused = tenant.ask("DELETE", f"/clusters/{cluster['id']}/backups/{base['id']}")
    assert refused.status_code == 409
