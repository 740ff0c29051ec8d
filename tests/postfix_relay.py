"""Debian's Postfix as a relay on loopback: a smarthost that passes mail on, and sends reports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.postgresql import free_port
from tests.tools import missing, require_tool

_DAEMONS = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


class Relay(NamedTuple):
    """A running Postfix."""

    port: int
    log: Path


@contextmanager
def postfix_relay(routes: Mapping[str, int], **options: str) -> Iterator[Relay]:
    """Run Postfix, which passes the mail of each domain in `routes` to that port of this machine.

    `options` are further ones of ``main.cf``.
    """
    postfix = require_tool("postfix")
    if os.geteuid() != 0:
        missing("Postfix is begun by root")
    port = free_port()
    with TemporaryDirectory(prefix="postfix-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # its daemons are another user
        for name in ("spool", "data"):
            (folder / name).mkdir()
        shutil.chown(folder / "data", "postfix")
        hops = ", ".join(f"{{{name} = smtp:[127.0.0.1]:{to}}}" for name, to in routes.items())
        settings = {
            "compatibility_level": "3.6",
            "queue_directory": f"{folder}/spool",
            "data_directory": f"{folder}/data",
            "maillog_file": f"{folder}/log",
            "maillog_file_prefixes": str(folder),
            "inet_interfaces": "127.0.0.1",
            "inet_protocols": "ipv4",
            "myhostname": "relay.test",
            "mydestination": "",
            "mynetworks": "127.0.0.0/8",
            "alias_maps": "",
            "alias_database": "",
            "smtpd_relay_restrictions": "permit_mynetworks, reject",
            "transport_maps": f"inline:{{{hops}}}",
            "disable_dns_lookups": "yes",
            "smtp_host_lookup": "native",
            "queue_run_delay": "1s",
            "minimal_backoff_time": "1s",
            "maximal_backoff_time": "1s",
            **options,
        }
        main = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (folder / "main.cf").write_text(main)
        (folder / "master.cf").write_text(_DAEMONS.format(port=port))
        log = folder / "log"
        command = (postfix, "-c", str(folder))
        process = subprocess.Popen(
            (*command, "start-fg"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(port, process, log)
            yield Relay(port, log)
        finally:
            subprocess.run((*command, "abort"), capture_output=True, check=False)
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the relay takes connections."""
    waiter = threading.Event()
    for _ in range(6000):  # a minute, on a machine that is busy
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        if process.poll() is not None:
            break
        waiter.wait(0.01)
    said = log.read_text() if log.exists() else "it logged nothing"
    raise AssertionError(f"Postfix did not start: {said}")
