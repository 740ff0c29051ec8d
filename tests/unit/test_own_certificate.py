"""When a server orders its certificate, and what it says while it has none."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from errno import ENOSPC
from itertools import pairwise
from pathlib import Path
from typing import Final
from unittest.mock import AsyncMock, Mock

import pytest

from cloudcore.acme.client import AcmeRefused, AcmeUnreachable, Directory
from cloudcore.files import replace_file
from cloudcore.own_certificate import orders
from cloudcore.own_certificate.orders import CertificateOrder, _obtain
from cloudcore.own_certificate.paths import own_certificate, own_folder, pause_file
from cloudcore.own_certificate.renewal import (
    FIRST_DELAY,
    MOST_DELAY,
    CertificateSubject,
    OwnCertificate,
    load_account_key,
    prepare,
)
from cloudcore.serving.tls.files import TlsNotYetValidError
from tests.certificates import DAY, self_signed
from tests.databases import program_environment

NAME: Final = "registry.example.com"
DIRECTORY: Final = "https://ca.example.com/directory"


class Ended(BaseException):
    """A test has seen enough."""


class Authority:
    """Signs what is ordered, with a clock that a test moves by sleeping."""

    def __init__(
        self, folder: Path, *outcomes: Exception | None, now: float = 1_800_000_000.0
    ) -> None:
        self.folder = folder
        prepare(folder, NAME, now)
        self.subject = CertificateSubject((NAME,), own_certificate(folder), DIRECTORY, "port 443")
        self.outcomes = list(outcomes)
        self.now = now
        self.ordered_at: list[float] = []
        self.life = 90 * DAY
        self.counted = Counter[str]()
        self.own = OwnCertificate(
            *(self.subject, self.order), clock=lambda: self.now, sleep=self.sleep, spread=lambda: 0
        )

    async def order(self) -> None:
        self.ordered_at.append(self.now)
        if not self.outcomes:
            raise Ended
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        self.sign()

    def sign(self) -> None:
        made = self.folder / "made"
        made.mkdir(exist_ok=True)
        begins = timedelta(seconds=self.now) - timedelta(seconds=_real_now())
        certificate, key = self_signed(made, NAME, begins=begins, ends=begins + self.life)
        replace_file(self.subject.files.certificate, key.read_bytes() + certificate.read_bytes())

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def count(self, key: str, amount: int) -> None:
        self.counted[key] += amount

    def run(self) -> list[float]:
        """Run until the outcomes are used up; return the seconds between the orders."""
        with pytest.raises(Ended):
            asyncio.run(self.own.keep(self.count))
        return [after - before for before, after in pairwise(self.ordered_at)]


def _real_now() -> float:
    return time.time()


def test_it_is_renewed_at_a_third_of_its_life(tmp_path: Path) -> None:
    authority = Authority(tmp_path, None, None)
    assert authority.own.is_due
    assert authority.run() == [pytest.approx(60 * 86400, abs=5)] * 2
    assert authority.counted == {"tls.order.succeeded": 2}
    assert prepare(tmp_path, NAME, authority.now)


def test_an_authority_that_fails_is_asked_ever_more_seldom_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = AcmeRefused("caa", "CAA record for registry.example.com prevents issuance")
    authority = Authority(tmp_path, *[refused] * 10)
    delays = authority.run()
    assert delays[:3] == pytest.approx([FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY])
    assert delays[-1] == pytest.approx(MOST_DELAY)
    assert sum(delay < 3600 for delay in delays) <= 5
    assert authority.counted == {"tls.order.failed": 10}
    assert "allows other authorities only; add this one" in caplog.text
    assert "clients refuse what is served until then" in caplog.text


def test_an_order_that_fails_unexpectedly_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, ValueError("odd"), None)
    assert authority.run()[0] == pytest.approx(FIRST_DELAY)
    assert authority.counted == {"tls.order.failed": 1, "tls.order.succeeded": 1}
    assert "the order of a certificate failed" in caplog.text


async def test_of_the_processes_of_a_machine_one_orders_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, directory = (NAME,), Directory(DIRECTORY, "SETTING")
    wanted = orders.CertificateOrder(names, directory, tmp_path)
    prepare(tmp_path, NAME, time.time())
    asked = AsyncMock(side_effect=AcmeUnreachable("away"))
    monkeypatch.setattr(orders, "order", asked)
    with orders._alone(tmp_path), pytest.raises(AcmeUnreachable, match="another process"):
        await orders._obtain(wanted)
    asked.assert_not_awaited()
    with pytest.raises(AcmeUnreachable, match="away"):
        await orders._obtain(wanted)
    asked.assert_awaited_once()


def test_a_key_that_cannot_be_written_leaves_the_one_before_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.pem"
    replace_file(path, b"before")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(ENOSPC, "no space left")))
    with pytest.raises(OSError, match="no space left"):
        replace_file(path, b"after")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"key.pem": b"before"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_restart_does_not_end_the_pause_but_other_names_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = AcmeUnreachable("no answer")
    begun = Authority(tmp_path, *[refused] * 3)
    begun.run()  # three have failed; the fourth ends it
    failed_at, file = begun.ordered_at[2], pause_file(begun.subject.files)
    assert file.stat().st_mode & 0o777 == 0o600

    restarted = Authority(tmp_path, refused, now=failed_at + 60)
    assert restarted.run() == pytest.approx([8 * FIRST_DELAY])
    assert restarted.ordered_at[0] == pytest.approx(failed_at + 4 * FIRST_DELAY)
    assert f"in 7 min (failed so far: 3); to order it now, delete {file}" in caplog.text

    other = Authority(tmp_path, now=failed_at + 60)
    other.own = replace(other.own, subject=other.subject._replace(names=(f"www.{NAME}",)))
    other.run()
    assert other.ordered_at == [failed_at + 60]
    for content in (b"", b"{", b'["x", -1, 0]', b'["x"]'):
        file.write_bytes(content)
        other = Authority(tmp_path, now=failed_at)
        other.run()
        assert other.ordered_at == [failed_at]
    issued = Authority(tmp_path, refused, None, now=failed_at)
    issued.run()
    assert not file.exists()


def test_after_a_failed_renewal_the_certificate_before_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, None, AcmeUnreachable("no answer"))
    authority.run()
    assert "the one before stays, for 720 hours" in caplog.text
    assert prepare(tmp_path, NAME, authority.now)


def test_a_clock_that_is_wrong_orders_no_second_certificate_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, None, None)
    authority.life = timedelta(seconds=0)
    assert authority.run() == pytest.approx([FIRST_DELAY, 2 * FIRST_DELAY])
    assert "is the clock of this machine right?" in caplog.text


def test_a_clock_that_is_behind_at_the_start_costs_no_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, now=_real_now())
    authority.sign()
    before = authority.subject.files.certificate.read_bytes()
    with pytest.raises(TlsNotYetValidError, match="set this machine's clock"):
        prepare(tmp_path, NAME, 0.0)
    assert authority.subject.files.certificate.read_bytes() == before


def test_a_certificate_of_other_names_is_served_until_there_is_one_of_these(tmp_path: Path) -> None:
    authority = Authority(tmp_path, now=_real_now())
    authority.sign()
    assert not authority.own.is_due
    other = authority.subject._replace(names=(NAME, f"www.{NAME}"))
    assert OwnCertificate(other, authority.order, clock=lambda: authority.now).is_due
    assert prepare(tmp_path, NAME, authority.now)


def test_each_directory_has_its_own_folder_and_account(tmp_path: Path) -> None:
    one, two = own_folder(tmp_path, DIRECTORY), own_folder(tmp_path, f"{DIRECTORY}-test")
    assert one != two
    prepare(one, NAME, _real_now())
    key = load_account_key(one)
    assert load_account_key(one).private_numbers() == key.private_numbers()
    for file in ("account.pem", own_certificate(one).certificate.name):
        assert (one / file).stat().st_mode & 0o777 == 0o600


def test_a_server_does_not_load_what_talks_to_authorities() -> None:
    """It would hold 11 MiB for ever, for an order each second month."""
    code = (
        "import sys, registry.cli.server.serve, registry.cli.server.own_certificate\n"
        "import registry.composition.ports\n"
        "print({'acme', 'josepy', 'requests', 'dnslib', 'dns'} & set(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=program_environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert shown.stdout == "set()\n"


def test_only_another_order_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, NAME, 0)
    wanted = CertificateOrder((NAME,), Directory(DIRECTORY, "X_DIRECTORY"), tmp_path)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(AcmeUnreachable, match="another process of this machine"):
            asyncio.run(_obtain(wanted))

    def fork(*_: object) -> bytes:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(orders, "signing_request", fork)
    with pytest.raises(BlockingIOError, match="no more processes"):
        asyncio.run(_obtain(wanted))
