"""A PostgreSQL with TLS that runs elsewhere, to be registered."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import psycopg

from cloudcore.certificate import authority
from cloudcore.certificate.authority import AuthorityUrls
from cloudcore.databases.clusters.cluster import Endpoint
from cloudcore.key_pairs import key_pem, new_private_key
from tests.postgresql import UNPRIVILEGED, free_port, run, server_programs

PASSWORD: Final = "known-elsewhere"
LOOPBACK: Final = (ip_network("127.0.0.0/8"),)


@dataclass
class Elsewhere:
    """A server with TLS, which an account has registered."""

    folder: Path
    port: int
    roots: str
    account: str | None

    def __post_init__(self) -> None:
        self.programs = server_programs()

    def control(self, *words: str) -> None:
        control = (self.programs / "pg_ctl", "--pgdata", self.folder / "cluster", "--wait")
        run(*control, "--log", self.folder / "log", *words, account=self.account)

    def start(self, authentication: str = "scram-sha-256") -> None:
        hba = f"local all all trust\nhostssl all all 127.0.0.1/32 {authentication}\n"
        (self.folder / "cluster/pg_hba.conf").write_text(hba)
        self.control("start")

    def set_password(self, password: str) -> None:
        """Let the server take another password, and the one before no more."""
        with psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname="postgres"
        ) as connection:
            connection.execute(f"ALTER ROLE postgres PASSWORD '{password}'".encode())

    def stop(self) -> None:
        self.control("--mode", "fast", "stop")

    def endpoint(self, host: str = "127.0.0.1", ca: str | None = None) -> Endpoint:
        return Endpoint(host, self.port, "postgres", "postgres", ca)


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    programs, account = server_programs(), UNPRIVILEGED if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="entrepot-elsewhere-"))
    try:
        now = time.time_ns() // 1000
        signer = authority.new_root("elsewhere", now)
        places = AuthorityUrls("http://localhost/certificate", "http://localhost/list")
        issuing = authority.new_issuing(signer, "elsewhere", places, now)
        key = new_private_key("ecdsa-p256")
        made = authority.issue(issuing, ["127.0.0.1"], key.public_key(), places, now)
        chain = authority.pem(made) + authority.pem(issuing.certificate)
        for name, text in (
            ("password", PASSWORD),
            ("chain", chain),
            ("key", key_pem(key).decode()),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        if account:
            for each in (folder, *folder.iterdir()):
                shutil.chown(each, account, account)
        run(
            *(programs / "initdb", "--pgdata", folder / "cluster", "--username", "postgres"),
            *("--auth", "scram-sha-256", "--pwfile", folder / "password", "--no-sync"),
            account=account,
        )
        port = free_port()
        (folder / "cluster/postgresql.auto.conf").write_text(
            f"listen_addresses='127.0.0.1'\nport={port}\nunix_socket_directories='{folder}'\n"
            f"ssl=on\nssl_cert_file='{folder}/chain'\nssl_key_file='{folder}/key'\n"
        )
        server = Elsewhere(folder, port, authority.pem(signer.certificate), account)
        server.start()
        try:
            yield server
        finally:
            server.control("--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
