"""A restored data folder is the enemy's: its files and its catalog get nothing by being started."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import psycopg.conninfo
import pytest

from tests.program_world import Died, Driving, Refused
from tests.server_world import PASSWORD, ServerMachine, server_machine
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
Spec = dict[str, Any]
POISON: Final = """
CREATE ROLE evil SUPERUSER LOGIN PASSWORD 'evil-1';
ALTER ROLE admin SUPERUSER CREATEROLE REPLICATION BYPASSRLS;
GRANT pg_execute_server_program, pg_read_server_files TO admin;
ALTER ROLE entrepot SET search_path = evil;
ALTER ROLE ALL SET session_preload_libraries = 'auto_explain';
CREATE FUNCTION public.boom() RETURNS event_trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the event trigger ran'; END $$;
CREATE FUNCTION public.become() RETURNS void SECURITY DEFINER LANGUAGE plpgsql AS
    $$ BEGIN ALTER ROLE admin SUPERUSER; END $$;
GRANT EXECUTE ON FUNCTION public.become() TO PUBLIC;
CREATE EVENT TRIGGER on_start ON ddl_command_start EXECUTE FUNCTION public.boom();
"""
CONF: Final = """
archive_mode = on
archive_command = 'touch /spool/archived'
restore_command = 'touch /spool/restored'
archive_cleanup_command = 'touch /spool/cleaned'
recovery_end_command = 'touch /spool/recovered'
shared_preload_libraries = 'no_such_library'
hba_file = '/data/pg_hba.conf'
listen_addresses = '*'
include_dir = '/data/more'
ssl = off
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[ServerMachine]:
    with server_machine() as made:
        yield made


@pytest.fixture(scope="module")
def driving(machine: ServerMachine) -> Iterator[Driving]:
    with machine.driving() as made:
        yield made


def copy_of(machine: ServerMachine, conninfo: str) -> Path:
    """Copy a server while it runs, as backups do."""
    folder = machine.top / f"copy-{uuid.uuid4()}"  # others are given to later tests again
    program = "/usr/lib/postgresql/15/bin/pg_basebackup"
    subprocess.run(
        (program, "-D", folder, "-X", "fetch", "-c", "fast", "--no-sync", "-d", conninfo),
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def poisoned(machine: ServerMachine, driving: Driving) -> Path:
    """Give the copy of a server whose catalog and files are the enemy's."""
    spec = machine.spec()
    machine.made(driving, spec)
    with machine.owner(spec) as session:
        session.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS a")
    with machine.superuser(spec, "main") as session:
        session.execute(POISON)
    short = machine.top / "s"
    short.symlink_to(machine.folder(spec["id"]) / "sockets")
    folder = copy_of(
        machine, psycopg.conninfo.make_conninfo(host=str(short), port=spec["port"], user="entrepot")
    )
    driving("remove", spec["id"], True)
    for name in ("postgresql.conf", "postgresql.auto.conf"):
        (folder / name).write_text(CONF)
    (folder / "more").mkdir()
    (folder / "more/x.conf").write_text("port = 1\n")
    (folder / "pg_hba.conf").write_text("host all all all trust\nlocal all all trust\n")
    (folder / "standby.signal").touch()
    (folder / "postmaster.pid").write_text("1\n/data\n0\n1\n/\n*\n0\nready\n")
    secret = machine.top / "secret"
    secret.write_text("of the service")
    (folder / "pg_tblspc/9999").symlink_to("/")
    (folder / "tablespace_map").write_text("9998 /spool\n")
    (folder / "out").symlink_to(machine.top)
    (folder / "base/secret").symlink_to(secret)
    os.mkfifo(folder / "fifo")
    (folder / "suid").write_bytes(b"#!/bin/sh\n")
    (folder / "suid").chmod(0o6755)
    return folder


def put(machine: ServerMachine, driving: Driving, spec: Spec, folder: Path) -> Path:
    """Put a copy where a restore puts what it fetches."""
    into = Path(driving("restoring", spec))
    owner = into.stat().st_uid
    shutil.copytree(folder, into, symlinks=True, dirs_exist_ok=True, copy_function=_copied)
    for at, folders, files in os.walk(into):
        for name in (".", *folders, *files):
            os.chown(Path(at, name), owner, owner, follow_symlinks=False)
    return into


def _copied(source: str, target: str) -> None:
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)


def restored(machine: ServerMachine, driving: Driving, folder: Path) -> Spec:
    spec = machine.spec()
    put(machine, driving, spec, folder)
    driving("adopt_restored", spec)
    driving("reload_certificate", spec, machine.chain, machine.key)
    driving("recover", spec, None, False, False)
    return spec


def test_a_poisoned_backup_gives_its_data_and_nothing_else(
    machine: ServerMachine, driving: Driving, poisoned: Path
) -> None:
    spec = restored(machine, driving, poisoned)
    data = machine.folder(spec["id"]) / "data"
    for gone in ("out", "fifo", "base/secret", "pg_tblspc/9999", "standby.signal"):
        assert not os.path.lexists(data / gone), gone
    assert (data / "suid").stat().st_mode & 0o7777 == 0o600
    assert not [*(machine.folder(spec["id"]) / "spool").iterdir()]
    with machine.owner(spec) as session:
        assert session.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
        session.execute("CREATE TABLE new (a int)")  # its event trigger does not run
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT public.become()")
        for statement in (
            "CREATE ROLE another",
            "ALTER ROLE evil PASSWORD 'x'",
            "COPY (SELECT 1) TO PROGRAM 'id'",
            "SELECT pg_read_file('PG_VERSION')",
            "SET ROLE pg_read_server_files",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(statement)
    with machine.superuser(spec) as session:
        supers = session.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall()
        assert supers == [("entrepot",)]
        settings = dict(
            session.execute(
                "SELECT name, setting FROM pg_settings WHERE name IN ('archive_mode',"
                " 'restore_command', 'shared_preload_libraries', 'session_preload_libraries',"
                " 'search_path', 'hba_file', 'listen_addresses', 'archive_cleanup_command', 'ssl')"
            ).fetchall()
        )
    assert settings == {
        "archive_mode": "off",
        "archive_cleanup_command": "",
        "restore_command": "",
        "shared_preload_libraries": "",
        "session_preload_libraries": "",
        "search_path": '"$user", public',
        "hba_file": "/conf/pg_hba.conf",
        "listen_addresses": "127.0.0.1",
        "ssl": "on",
    }
    with pytest.raises(psycopg.OperationalError), machine.owner(spec, sslmode="disable"):
        pass
    driving("remove", spec["id"], True)
    assert (machine.top / "secret").read_text() == "of the service"


@contextlib.contextmanager
def given(machine: ServerMachine, spec: Spec, wal: Path) -> Iterator[None]:
    """Give a recovering server the WAL in a folder, and say of all else that there is none."""
    spool = machine.folder(spec["id"]) / "spool"
    for name in ("wanted", "given"):
        (spool / name).mkdir()
        shutil.chown(spool / name, spool.stat().st_uid, spool.stat().st_uid)
    is_over = threading.Event()

    def give() -> None:
        while not is_over.wait(0.05):
            for each in (spool / "wanted").iterdir():
                has_it = (wal / each.name).exists()
                made = machine.top / each.name
                made.write_bytes((wal / each.name).read_bytes() if has_it else b"")
                shutil.chown(made, spool.stat().st_uid, spool.stat().st_uid)
                made.rename(spool / "given" / (each.name if has_it else f"{each.name}.absent"))
                each.unlink()

    giving = threading.Thread(target=give)
    giving.start()
    try:
        yield
    finally:
        is_over.set()
        giving.join()


def test_wal_is_recovered_to_a_moment_or_if_it_ends_before_that_to_its_end(
    machine: ServerMachine, driving: Driving
) -> None:
    source = machine.spec(has_archive=True)
    machine.made(driving, source)
    with machine.owner(source) as session:
        session.execute("CREATE TABLE kept (n int)")
    short = machine.top / "of-source"
    short.symlink_to(machine.folder(source["id"]) / "sockets")
    where = psycopg.conninfo.make_conninfo(
        host=str(short), port=source["port"], user="entrepot", dbname="postgres"
    )
    copy = copy_of(machine, where)
    with machine.owner(source) as session:
        session.execute("INSERT INTO kept VALUES (1)")
        row = session.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000000").fetchone()
    assert row is not None
    moment, spool = int(row[0]), machine.folder(source["id"]) / "spool"
    early, late = machine.top / "early", machine.top / "late"
    _switch(where, "SELECT pg_switch_wal()", spool)
    shutil.copytree(spool, early)
    _switch(where, "SELECT 1", spool, lambda: driving("switch_wal", source))
    shutil.copytree(spool, late)
    driving("remove", source["id"], True)

    for wal, is_at_moment in ((early, False), (late, True)):
        spec = machine.spec()
        put(machine, driving, spec, copy)
        driving("adopt_restored", spec)
        driving("reload_certificate", spec, machine.chain, machine.key)
        with given(machine, spec, wal):
            if not is_at_moment:
                with pytest.raises(Refused, match="before configured recovery target"):
                    driving("recover", spec, moment, True, False)
            driving("recover", spec, moment, True, not is_at_moment)
        driving("set_password", spec, "admin", PASSWORD)
        with machine.owner(spec) as session:
            assert session.execute("SELECT n FROM kept").fetchall() == [(1,)]
        driving("remove", spec["id"], True)


def _switch(
    where: str, statement: str, spool: Path, switch: Callable[[], object] = lambda: None
) -> None:
    """Have the file of WAL that a server writes ended, and given away."""
    with psycopg.connect(where, autocommit=True) as session:
        row = session.execute("SELECT pg_walfile_name(pg_current_wal_lsn() + 1)").fetchone()
        assert row is not None
        session.execute(statement.encode())
    switch()
    until((spool / str(row[0])).exists)


@pytest.mark.parametrize(
    "place",
    [
        "after clean",
        "after settle",
        "after launch",
        "before roles",
    ],
)
def test_who_dies_while_it_is_made_fit_leaves_it_unserved(
    machine: ServerMachine, driving: Driving, poisoned: Path, place: str
) -> None:
    spec = machine.spec()
    put(machine, driving, spec, poisoned)
    with machine.driving(place) as dying, contextlib.suppress(Died):
        dying("adopt_restored", spec)
        dying("reload_certificate", spec, machine.chain, machine.key)
        dying("recover", spec, None, False, False)
        pytest.fail("it lives")
    with (
        pytest.raises(psycopg.OperationalError),
        machine.owner(spec, user="evil", password="evil-1"),
    ):
        pass
    driving("adopt_restored", spec)
    driving("reload_certificate", spec, machine.chain, machine.key)
    driving("recover", spec, None, False, False)
    driving("set_password", spec, "admin", PASSWORD)
    with machine.owner(spec) as session:
        assert session.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
        found = session.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall()
        assert found == [("entrepot",)]
    driving("remove", spec["id"], True)


def test_what_is_no_data_of_this_version_is_refused(
    machine: ServerMachine, driving: Driving
) -> None:
    spec = machine.spec()
    into = Path(driving("restoring", spec))
    (into / "PG_VERSION").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="PG_VERSION"):
        driving("adopt_restored", spec)
    (into / "PG_VERSION").unlink()
    (into / "PG_VERSION").write_text("14\n")
    with pytest.raises(Refused, match="no data of PostgreSQL 15"):
        driving("adopt_restored", spec)
    driving("remove", spec["id"], True)


def test_data_that_do_not_start_say_why(machine: ServerMachine, driving: Driving) -> None:
    spec = machine.spec()
    into = Path(driving("restoring", spec))
    (into / "PG_VERSION").write_text("15\n")
    (into / "global").mkdir()
    for each in ("PG_VERSION", "global"):
        os.chown(into / each, into.stat().st_uid, into.stat().st_gid)
    driving("adopt_restored", spec)
    with pytest.raises(Refused, match=r"could not open|does not exist"):
        driving("recover", spec, None, False, False)
    driving("remove", spec["id"], True)


def test_a_copy_from_elsewhere_gets_an_owner_who_reads_and_writes_it(
    machine: ServerMachine, driving: Driving, postgresql_url: str
) -> None:
    with psycopg.connect(postgresql_url, autocommit=True) as session:
        session.execute("CREATE DATABASE shop")
        session.execute("CREATE ROLE clerk LOGIN PASSWORD 'clerk-1' CREATEROLE SUPERUSER")
    try:
        for name in ("shop", "postgres"):
            there = psycopg.conninfo.make_conninfo(postgresql_url, dbname=name)
            with psycopg.connect(there, autocommit=True) as session:
                session.execute("CREATE TABLE orders AS SELECT generate_series(1, 10) AS a")
        spec = restored(machine, driving, copy_of(machine, postgresql_url))
    finally:
        with psycopg.connect(postgresql_url, autocommit=True) as session:
            session.execute("DROP DATABASE shop")
            session.execute("DROP ROLE clerk")
            session.execute("DROP TABLE IF EXISTS orders")
    driving("set_password", spec, "admin", PASSWORD)
    with machine.owner(spec, "shop") as session:
        assert session.execute("SELECT count(*) FROM orders").fetchone() == (10,)
        session.execute("INSERT INTO orders VALUES (11)")
        session.execute("CREATE SCHEMA own")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("UPDATE pg_catalog.pg_authid SET rolsuper = true")
        found = session.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall()
        assert found == [("entrepot",)]
    with machine.owner(spec, "restored_postgres") as session:
        assert session.execute("SELECT count(*) FROM orders").fetchone() == (10,)
    with machine.superuser(spec, "postgres") as session:
        assert session.execute("SELECT to_regclass('orders')").fetchone() == (None,)
    with machine.owner(spec):
        pass
    driving("remove", spec["id"], True)


@contextlib.contextmanager
def elsewhere(url: str) -> Iterator[None]:
    """Let a server without checksums of pages have a database `shop`, with a view and its rows."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE DATABASE shop")
    try:
        shop = psycopg.conninfo.make_conninfo(url, dbname="shop")
        with psycopg.connect(shop, autocommit=True) as session:
            session.execute("CREATE TABLE orders AS SELECT generate_series(1, 1000) AS a")
            session.execute("CREATE MATERIALIZED VIEW totals AS SELECT a FROM orders")
            session.execute("CREATE INDEX ON orders (a)")
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("ALTER DATABASE shop ALLOW_CONNECTIONS false")
        yield
    finally:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("DROP DATABASE shop")


def damage(machine: ServerMachine, driving: Driving, spec: Spec, table: str, name: str) -> None:
    """Write over a page of a table of a restored server, which ends."""
    with machine.superuser(spec, name) as session:
        found = session.execute("SELECT pg_relation_filepath(%s)", [table]).fetchone()
    assert found is not None
    driving("stop", spec["id"])
    with (machine.folder(spec["id"]) / "data" / found[0]).open("r+b") as file:
        file.write(b"\xa5" * 8192)


def test_without_checksums_every_row_is_read(
    machine: ServerMachine, driving: Driving, postgresql_url: str
) -> None:
    with elsewhere(postgresql_url):
        copy = copy_of(machine, postgresql_url)
    spec = restored(machine, driving, copy)
    assert driving("check_data", spec) == "rows"
    with machine.superuser(spec, "shop") as session:  # what only an owner's server would listen on
        assert session.execute("SHOW listen_addresses").fetchone() == ("",)
    damage(machine, driving, spec, "orders", "shop")
    with pytest.raises(Refused, match=r"(?s)pg_dumpall failed:.*invalid page in block 0"):
        driving("check_data", spec)
    driving("remove", spec["id"], True)
    spec = restored(machine, driving, copy)
    driving("check_data", spec)
    damage(machine, driving, spec, "totals", "shop")  # a dump has only how it is made
    with pytest.raises(Refused, match=r"(?s)pg_amcheck failed:.*invalid page in block 0"):
        driving("check_data", spec)
    driving("remove", spec["id"], True)


def test_with_checksums_every_page_is_compared(
    machine: ServerMachine, driving: Driving, poisoned: Path
) -> None:
    spec = restored(machine, driving, poisoned)
    assert driving("check_data", spec) == "checksums"
    driving("start", spec)
    damage(machine, driving, spec, "kept", "main")
    with pytest.raises(Refused, match="pg_checksums failed"):
        driving("check_data", spec)
    driving("remove", spec["id"], True)
