"""Database servers that run here: who comes in, what their owners may do, how they live.

With root each has a user of its own; without root they act as the service's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import psycopg.errors
import pytest

from tests.postgresql import free_port
from tests.program_driver import FIRST_SERVER_UID
from tests.program_world import Driving, Refused
from tests.server_world import ServerMachine, server_machine
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
Spec = dict[str, Any]


@pytest.fixture(scope="module", params=[True, False], ids=["root", "nobody"])
def machine(request: pytest.FixtureRequest) -> Iterator[ServerMachine]:
    with server_machine(is_root=request.param) as made:
        yield made


@pytest.fixture(scope="module")
def driving(machine: ServerMachine) -> Iterator[Driving]:
    with machine.driving() as made:
        yield made


@pytest.fixture(scope="module")
def server(machine: ServerMachine, driving: Driving) -> Spec:
    """Give a server that runs: tests leave it running."""
    spec = machine.spec()
    machine.made(driving, spec)
    return spec


def test_a_machine_is_looked_at_by_running_a_program(driving: Driving) -> None:
    driving("check")
    assert driving("seen").keys() <= {*driving("seen")}


def test_clients_come_in_by_tls_that_the_install_answers_for(
    machine: ServerMachine, server: Spec
) -> None:
    with machine.owner(server) as session:
        assert session.info.encoding == "utf-8"
        assert session.execute("SELECT current_user, current_database()").fetchone() == (
            "admin",
            "main",
        )
        shown = "SELECT setting FROM pg_settings WHERE name = 'data_checksums'"
        assert session.execute(shown).fetchone() == ("on",)
    for refused in (
        {"sslmode": "disable"},
        {"password": "another"},
        {"user": "entrepot"},
        {"dbname": "postgres"},
        {"dbname": "template1"},
    ):
        with (
            pytest.raises(psycopg.OperationalError),
            machine.owner(server, **({"database": "main"} | refused)),
        ):
            pass


NOT_ALLOWED: Final = [
    "ALTER ROLE admin SUPERUSER",
    "ALTER ROLE admin CREATEROLE",
    "ALTER ROLE admin REPLICATION",
    "ALTER ROLE entrepot PASSWORD 'x'",
    "CREATE ROLE another",
    "SET ROLE entrepot",
    "SET SESSION AUTHORIZATION entrepot",
    "GRANT pg_execute_server_program TO admin",
    "GRANT pg_read_server_files TO admin",
    "GRANT entrepot TO admin",
    "UPDATE pg_catalog.pg_authid SET rolsuper = true",
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "COPY pg_class FROM PROGRAM 'id'",
    "COPY (SELECT 1) TO '/data/written'",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT pg_read_binary_file('/conf/server.pem')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT rolpassword FROM pg_catalog.pg_authid",
    "LOAD '/usr/lib/postgresql/15/lib/dblink.so'",
    "CREATE FUNCTION f() RETURNS int AS '/lib/x86_64-linux-gnu/libc.so.6', 'getpid' LANGUAGE c",
    "CREATE EXTENSION dblink",
    "CREATE EXTENSION file_fdw",
    "CREATE EXTENSION postgres_fdw",
    "CREATE EXTENSION adminpack",
    "CREATE EVENT TRIGGER t ON ddl_command_start EXECUTE FUNCTION f()",
    "CREATE TABLESPACE t LOCATION '/tmp'",
    "CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1' PUBLICATION p",
    "ALTER SYSTEM SET archive_command = 'id'",
    "ALTER ROLE admin SET session_preload_libraries = 'auto_explain'",
    "SET session_preload_libraries = 'auto_explain'",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "SELECT pg_promote()",
]


def test_an_owner_becomes_no_more_than_that(machine: ServerMachine, server: Spec) -> None:
    done = []
    with machine.owner(server) as session:
        for statement in NOT_ALLOWED:
            with contextlib.suppress(
                psycopg.errors.InsufficientPrivilege, psycopg.errors.CantChangeRuntimeParam
            ):
                session.execute(statement)
                done.append(statement)
    assert done == []


def test_an_owner_has_databases_of_its_own(machine: ServerMachine, server: Spec) -> None:
    with machine.owner(server) as session:
        session.execute("CREATE DATABASE second")
        session.execute("CREATE EXTENSION pgcrypto")  # trusted ones need no superuser
        session.execute("DROP EXTENSION pgcrypto")
    with machine.owner(server, "second") as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS a")
    with machine.owner(server) as session:
        session.execute("DROP DATABASE second")


def test_who_takes_a_server_over_has_that_server_alone(
    machine: ServerMachine, driving: Driving, server: Spec
) -> None:
    """A superuser of a server runs any program as its user: this stands for a broken server."""
    other = machine.spec(port=server["port"] + 1)
    machine.put(driving, other)
    secret = machine.top / "secret"
    secret.write_text("of the service")
    secret.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = machine.inside(
            server,
            f"""
            echo "user $(id -u)"
            echo "root $(ls / | tr '\\n' ' ')"
            echo "secret $(cat {secret})"
            echo "other $(ls {machine.folder(other["id"])})"
            echo "links $(ls -1 /proc/self/net/dev_snmp6 | tr '\\n' ' ')"
            bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo "reached the machine"
            bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' && echo "reached the world"
            for each in /proc/[0-9]*; do echo "process $(cat $each/comm)"; done
            unshare --user true && echo "made a namespace"
            unshare --mount true && echo "made a namespace"
            touch /conf/pg_hba.conf /usr/bin/x /etc/x /x && echo "wrote"
            rm -f /conf/server.pem && echo "removed"
            setpriv --reuid=0 true && echo "became root"
            mount -t tmpfs none /tmp && echo "mounted"
            echo "capabilities $(grep CapEff /proc/self/status)"
            """,
        )
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    found = said.splitlines()
    uid = FIRST_SERVER_UID if machine.is_root else 1000
    assert f"user {uid}" in found
    assert "root bin conf data dev etc lib lib64 proc sbin sockets spool tmp usr " in found, said
    assert "secret " in found
    assert "other " in found
    for reached in ("reached", "made", "wrote", "removed", "became", "mounted"):
        assert not any(line.startswith(reached) for line in found), said
    assert {line for line in found if line.startswith("process")} <= {
        f"process {name}" for name in ("postgres", "sh", "tr", "cat", "ls", "")
    }, said
    assert "capabilities CapEff: 0000000000000000" in found
    driving("remove", other["id"], True)


def test_a_server_is_bounded(machine: ServerMachine, server: Spec) -> None:
    """By control groups: its memory, its processors, its processes."""
    assert machine.shim(server["id"]) not in machine.processes(server["id"])
    said = machine.inside(
        server,
        """
        mkfifo /tmp/ends
        exec 3<>/tmp/ends
        (for i in $(seq 400); do read line <&3 >/dev/null 2>&1 & done; echo all)
        i=0; while [ $i -lt 400 ]; do echo >&3; i=$((i + 1)); done
        """,
    )
    assert "Cannot fork" in said, said
    # The shell that could not fork ended without them, and whom it left its server takes for its
    # own: killed, they would make it recover. Each reads a line, and ends by itself.
    until(lambda: len(machine.processes(server["id"])) < 20)
    with machine.owner(server) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_shims_are_together_in_a_group_that_gives_way_to_the_service(
    machine: ServerMachine, server: Spec
) -> None:
    known = machine.shim(server["id"])
    shim = Path(f"/proc/{known}/task/{known}/children").read_text().split()[0]
    groups = Path(f"/proc/{shim}/cgroup").read_text().splitlines()
    group = next(line.split(":")[2] for line in groups if ":cpu:" in line)
    assert group.endswith("/entrepot-shims")
    assert (Path("/sys/fs/cgroup/cpu") / group[1:] / "cpu.shares").read_text() == "512\n"
    assert int(shim) not in machine.processes(server["id"])


def test_a_server_outlives_who_started_it_and_is_adopted(
    machine: ServerMachine, server: Spec
) -> None:
    shim = machine.shim(server["id"])
    with machine.owner(server) as session:
        for _ in range(2):
            with machine.driving() as another:
                another("start", server)
                assert another("seen")[server["id"]]["status"] == "running"
                another.process.kill()
        assert machine.shim(server["id"]) == shim
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_stopped_server_starts_with_what_it_had(
    machine: ServerMachine, driving: Driving, server: Spec
) -> None:
    with machine.owner(server) as session:
        session.execute("CREATE TABLE kept AS SELECT 7 AS a")
    driving("stop", server["id"])
    driving("stop", server["id"])
    assert driving("seen")[server["id"]]["status"] == "stopped"
    assert not machine.processes(server["id"])
    with pytest.raises(psycopg.OperationalError), machine.owner(server):
        pass
    driving("start", server)
    with machine.owner(server) as session:
        assert session.execute("SELECT a FROM kept").fetchone() == (7,)
        session.execute("DROP TABLE kept")


@pytest.mark.parametrize("who", ["shim", "postgres"])
def test_a_killed_server_is_seen_stopped_and_recovers(
    machine: ServerMachine, driving: Driving, server: Spec, who: str
) -> None:
    with machine.owner(server) as session:
        session.execute("CREATE TABLE committed AS SELECT 8 AS a")
    found = machine.shim if who == "shim" else machine.first_process
    os.kill(found(server["id"]), signal.SIGKILL)
    until(lambda: driving("seen")[server["id"]]["status"] == "stopped")
    driving("start", server)
    with machine.owner(server) as session:
        assert session.execute("SELECT a FROM committed").fetchone() == (8,)
        session.execute("DROP TABLE committed")


def test_what_a_server_stores_of_its_settings_has_no_power(
    machine: ServerMachine, driving: Driving, server: Spec
) -> None:
    shown = (
        "SELECT setting FROM pg_settings WHERE name IN ('archive_mode', 'hba_file', 'ssl',"
        " 'shared_preload_libraries', 'unix_socket_directories') ORDER BY name"
    )
    with machine.superuser(server) as session:
        before = session.execute(shown).fetchall()
        session.execute("ALTER SYSTEM SET archive_mode = on")
        session.execute("ALTER SYSTEM SET hba_file = '/data/pg_hba.conf'")
        session.execute("ALTER SYSTEM SET ssl = off")
        session.execute("ALTER SYSTEM SET shared_preload_libraries = 'auto_explain'")
        session.execute("ALTER SYSTEM SET unix_socket_directories = '/tmp'")
        session.execute("SELECT pg_reload_conf()")
    driving("stop", server["id"])
    driving("start", server)
    with machine.superuser(server) as session:
        assert session.execute(shown).fetchall() == before


def test_what_a_server_does_to_its_folder_harms_nobody_else(
    machine: ServerMachine, driving: Driving
) -> None:
    spec = machine.spec(port=machine.port + 4)
    machine.made(driving, spec)
    deep = "/".join(["d"] * 100)
    machine.inside(
        spec,
        f"""
        rm /data/postmaster.pid; mkfifo /data/postmaster.pid
        ln -s / /data/link; ln -s / /sockets/link; ln -s / /spool/link
        cd /spool; for i in $(seq 40); do mkdir -p {deep}; cd {deep}; done
        mkdir /data/closed; touch /data/closed/file; chmod 000 /data/closed
        """,
    )
    assert driving("seen")[spec["id"]]["status"] == "starting"
    with machine.driving() as another:  # it measures anew
        assert another("seen")[spec["id"]]["data_bytes"] > 0
    machine.inside(spec, "rm /data/postmaster.pid")  # it would wait for it when it stops
    driving("stop", spec["id"])
    driving("remove", spec["id"], True)
    assert Path("/usr").exists()
    assert not machine.folder(spec["id"]).exists()


def test_a_new_certificate_is_shown_without_a_restart(
    machine: ServerMachine, driving: Driving, server: Spec
) -> None:
    shim = machine.shim(server["id"])
    before = machine.root.read_text()
    machine.issue()
    driving("reload_certificate", server, machine.chain, machine.key)

    def is_shown() -> bool:
        with contextlib.suppress(psycopg.OperationalError), machine.owner(server):
            return True
        return False

    until(is_shown)  # a signal is not waited for
    assert machine.root.read_text() != before
    assert machine.shim(server["id"]) == shim


def test_a_port_that_is_taken_is_said(machine: ServerMachine, driving: Driving) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        taken = machine.spec(port=listener.getsockname()[1])
        if taken["port"] < machine.port:
            taken["port"] = machine.port
        machine.put(driving, taken)
        with pytest.raises(Refused, match="cannot listen"):
            driving("start", taken)
    driving("remove", taken["id"], True)


def test_a_server_has_its_files_when_its_user_is_another_one(
    machine: ServerMachine, driving: Driving
) -> None:
    spec = machine.spec(port=machine.port + 5, has_archive=True)
    machine.made(driving, spec)
    driving("stop", spec["id"])
    spool = machine.folder(spec["id"]) / "spool"
    assert list(spool.iterdir())
    moved = spec | {"port": machine.port + 6}  # its user is the one of its port
    driving("reload_certificate", moved, machine.chain, machine.key)
    driving("start", moved)
    owners = {each.stat().st_uid for each in (spool, *spool.iterdir())}
    assert owners == {(machine.folder(spec["id"]) / "data").stat().st_uid}
    with machine.owner(moved) as session:
        session.execute("CREATE TABLE more AS SELECT 1")
    driving("remove", spec["id"], True)


def test_what_is_removed_is_kept_for_a_day(machine: ServerMachine, driving: Driving) -> None:
    spec = machine.spec(port=machine.port + 2)
    machine.put(driving, spec)
    driving("remove", spec["id"], False)
    [grave] = (machine.base / ".graves").iterdir()
    driving("delete_expired")
    assert (grave / "PG_VERSION").exists()
    grave.rename(grave.with_name(f"{spec['id']}-1"))  # it is of long ago
    driving("delete_expired")
    assert not [*(machine.base / ".graves").iterdir()]
    (machine.base / ".graves").rmdir()
    assert spec["id"] not in driving("seen")
    machine.put(driving, spec)
    driving("set_aside", spec["id"])
    [found] = (machine.base / ".unknown").iterdir()
    found = found.rename(found.with_name(f"{spec['id']}-1"))
    driving("delete_expired")
    assert (found / "data" / "PG_VERSION").exists(), "only the operator deletes it"
    shutil.rmtree(found.parent)
