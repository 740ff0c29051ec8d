"""pgBackRest with its repository in a bucket: a database is backed up, lost, and restored."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.clients.docs_blocks import block_of
from tests.clients.s3_site import S3Site, s3
from tests.postgresql import UNPRIVILEGED, free_port, server_programs
from tests.postgresql import run as run_as
from tests.tools import require_tool

__all__ = ["s3"]

ROWS = 20_000


class Cluster:
    """A PostgreSQL whose WAL pgBackRest archives."""

    def __init__(self, folder: Path, s3: S3Site) -> None:
        self.folder, self.port = folder, free_port()
        self.data, self.config = folder / "cluster", folder / "pgbackrest.conf"
        self._programs, self._pgbackrest = server_programs(), require_tool("pgbackrest")
        certificate = folder / "certificate.pem"
        shutil.copy(s3.certificate, certificate)
        for name in ("log", "spool", "lock"):
            (folder / name).mkdir()
        words = (
            ("s3.example.com", "localhost"),
            ("9000", str(s3.port)),
            ("AK...", s3.key_id),
            ("SECRET...", s3.secret),
            ("/var/lib/postgresql/15/main", str(self.data)),
        )
        block = block_of("docs/how-to/s3.md", "ini", "repo1-type=s3", words)
        of_this_machine = (
            f"repo1-storage-ca-file={certificate}\nstart-fast=y\ncompress-level=1\n"
            f"log-path={folder}/log\nspool-path={folder}/spool\nlock-path={folder}/lock\n[main]"
        )
        self.config.write_text(
            block.replace("[main]", of_this_machine)
            + f"pg1-port={self.port}\npg1-socket-path={folder}\npg1-user=postgres\n"
        )

    def make(self) -> None:
        """Make an empty cluster, and start it."""
        self._run(
            self._programs / "initdb", "--pgdata", self.data, "--username", "postgres",
            "--auth", "trust", "--locale", "C", "--encoding", "UTF8",
        )  # fmt: skip
        archive = f"{self._pgbackrest} --config={self.config} --stanza=main archive-push %p"
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\n"
                f"unix_socket_directories = '{self.folder}'\nwal_level = replica\n"
                f"archive_mode = on\narchive_command = '{archive}'\nfsync = off\n"
            )
        self.start()

    def start(self) -> None:
        """Start the server, and wait for the end of its recovery."""
        log = self.folder / "server.log"
        self._run(*self._control, "--log", log, "start")

    def stop(self) -> None:
        """Stop the server, if it runs."""
        command = [*self._control, "--mode", "immediate", "stop"]
        user = UNPRIVILEGED
        subprocess.run(command, user=user, cwd="/", check=False, capture_output=True)

    @property
    def _control(self) -> tuple[str | Path, ...]:
        return self._programs / "pg_ctl", "--pgdata", self.data, "--wait"

    def pgbackrest(self, *words: str) -> None:
        """Run pgBackRest."""
        self._run(self._pgbackrest, f"--config={self.config}", "--stanza=main", *words)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement; return its rows."""
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True
        ) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _run(self, *command: str | Path) -> None:
        run_as(*command, account=UNPRIVILEGED)


@pytest.fixture
def cluster(s3: S3Site) -> Iterator[Cluster]:
    """Return a cluster of PostgreSQL's own account."""
    with tempfile.TemporaryDirectory(prefix="entrepot-pgbackrest-") as name:
        folder = Path(name)
        made = Cluster(folder, s3)
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, UNPRIVILEGED, UNPRIVILEGED)
        try:
            yield made
        finally:
            made.stop()


def test_a_database_is_restored_from_a_bucket(s3: S3Site, cluster: Cluster) -> None:
    s3.boto().create_bucket(Bucket="pgbackrest")
    cluster.make()
    cluster.pgbackrest("stanza-create")
    cluster.sql("CREATE TABLE things AS SELECT n, md5(n::text) AS said, repeat(md5(n::text), 20)"
                f" AS more FROM generate_series(1, {ROWS}) AS n")  # fmt: skip
    cluster.pgbackrest("--type=full", "backup")
    cluster.sql(
        "INSERT INTO things SELECT -n, 'after the full backup' FROM generate_series(1, 100) n"
    )
    cluster.pgbackrest("--type=incr", "backup")
    cluster.sql("DELETE FROM things WHERE n = 7")
    cluster.sql("SELECT pg_switch_wal()")
    cluster.pgbackrest("check")
    before = cluster.sql(
        "SELECT count(*), md5(string_agg(things::text, ',' ORDER BY n)) FROM things"
    )
    cluster.stop()
    shutil.rmtree(cluster.data)
    cluster.data.mkdir(mode=0o700)
    shutil.chown(cluster.data, UNPRIVILEGED, UNPRIVILEGED)
    cluster.pgbackrest("restore")
    cluster.start()
    after = cluster.sql(
        "SELECT count(*), md5(string_agg(things::text, ',' ORDER BY n)) FROM things"
    )
    assert after == before
    assert before[0][0] == ROWS + 99
