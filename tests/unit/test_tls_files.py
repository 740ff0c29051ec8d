"""What is said of a certificate that cannot be served, and when one is told of."""

from __future__ import annotations

import time
from base64 import b64decode, encodebytes
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cloudcore.serving.tls.files import ServedTls, TlsFilesError, load_tls
from cloudcore.serving.tls.paths import TlsFiles
from tests.certificates import DAY, self_signed


def made(folder: Path, name: str = "registry.example.com", ends: timedelta = DAY) -> TlsFiles:
    """Write a certificate into a folder of its own."""
    folder.mkdir()
    return TlsFiles(*self_signed(folder, name, begins=-90 * DAY, ends=ends))


def refusal(files: TlsFiles) -> str:
    """Return why a certificate cannot be served."""
    with pytest.raises(TlsFilesError) as raised:
        load_tls(files, time.time())
    return str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = made(tmp_path / "a")
    assert "No such file" in refusal(files._replace(certificate=tmp_path / "gone"))
    assert f"the key {tmp_path / 'gone'} cannot be read" in refusal(
        files._replace(key=tmp_path / "gone")
    )


def test_what_is_no_pem_is_said_to_be_none(tmp_path: Path) -> None:
    files = made(tmp_path / "a")
    assert "holds no certificate in PEM" in refusal(files._replace(certificate=files.key))
    assert "holds no private key in PEM" in refusal(files._replace(key=files.certificate))


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    files, other = made(tmp_path / "a"), made(tmp_path / "b")
    assert "is not that of the certificate" in refusal(files._replace(key=other.key))


def test_a_chain_in_the_wrong_order_is_told_how_to_mend(tmp_path: Path) -> None:
    files, other = made(tmp_path / "a"), made(tmp_path / "b")
    both = tmp_path / "both.pem"
    both.write_bytes(other.certificate.read_bytes() + files.certificate.read_bytes())
    assert "belongs to certificate 2 of" in refusal(files._replace(certificate=both))


def test_a_subject_that_cannot_be_read_is_served(tmp_path: Path) -> None:
    files = made(tmp_path / "a")
    content = x509.load_pem_x509_certificate(files.certificate.read_bytes()).public_bytes(
        serialization.Encoding.DER
    )
    # The common name becomes a sequence, which is no string.
    odd = content.replace(b"\x0c\x14registry.example.com", b"\x30\x14registry.example.com")
    assert odd != content
    files.certificate.write_bytes(
        b"-----BEGIN CERTIFICATE-----\n" + encodebytes(odd) + b"-----END CERTIFICATE-----\n"
    )
    assert not load_tls(files, time.time()).is_stand_in


def test_a_key_under_a_password_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    files = made(tmp_path / "a")
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert "is under a password" in refusal(files)


P256: Final = bytes.fromhex("06082a8648ce3d030107")
"""The curve of a key, as certificates and keys name it in DER."""
UNKNOWN: Final = P256[:-1] + b"\x7f"


def test_a_kind_of_key_that_is_unknown_is_refused(tmp_path: Path) -> None:
    """Any other error would end the worker that reads the files again."""
    files = made(tmp_path / "a")
    certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
    issuer = pem(certificate, P256, UNKNOWN)
    files.certificate.write_bytes(certificate + issuer)
    assert "cannot be served" in refusal(files)  # says OpenSSL, of this one
    files.certificate.write_bytes(issuer)
    assert "is not that of the certificate" in refusal(files)
    files.certificate.write_bytes(
        pem(certificate, b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x77")
    )
    assert "holds no certificate" in refusal(files)  # of a version that there is not
    files.certificate.write_bytes(certificate)
    files.key.write_bytes(pem(key, P256, UNKNOWN))
    assert "is of a kind that cannot be served" in refusal(files)


def pem(text: bytes, old: bytes, new: bytes) -> bytes:
    """Return what a PEM has, with some bytes of it replaced by as many others."""
    first, *lines, last = text.splitlines(keepends=True)
    content = b64decode(b"".join(lines))
    assert old in content
    return b"".join((first, encodebytes(content.replace(old, new)), last))


def test_a_certificate_out_of_its_time_is_refused(tmp_path: Path) -> None:
    assert "expired at" in refusal(made(tmp_path / "a", ends=-DAY))
    folder = tmp_path / "b"
    folder.mkdir()
    files = TlsFiles(*self_signed(folder, "a", begins=DAY, ends=2 * DAY))
    assert "is valid from" in refusal(files)


class Moving:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def test_renewed_files_are_served_and_broken_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, renewed = made(tmp_path / "a", ends=30 * DAY), made(tmp_path / "b", ends=90 * DAY)
    served = ServedTls(files, load_tls(files, time.time()))
    first = served.context
    served.check()
    assert served.context is first

    # A renewal in two steps: between them the two do not belong together.
    renewed.key.replace(files.key)
    served.check()
    assert served.context is first
    assert not caplog.records
    renewed.certificate.replace(files.certificate)
    served.check()
    assert served.context is not first
    assert not caplog.records
    assert served.gauge().value == pytest.approx(90 * 86400, abs=60)

    files.certificate.unlink()
    second = served.context
    for count in (0, 1, 1):
        served.check()
        assert served.context is second
        assert len(caplog.records) == count
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the certificate served so far stays" in caplog.text
    served.must_reload = True
    served.check()
    assert len(caplog.records) == 2


def test_each_renewal_may_be_met_between_its_two_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that deletes the old files first looks the same each time."""
    files = made(tmp_path / "a", ends=30 * DAY)
    served = ServedTls(files, load_tls(files, time.time()))
    for name in ("b", "c"):
        renewed, before = made(tmp_path / name, ends=30 * DAY), served.context
        files.certificate.unlink()
        served.check()
        assert served.context is before
        renewed.key.replace(files.key)
        renewed.certificate.replace(files.certificate)
        for _ in range(2):
            served.check()
            assert served.context is not before
    assert not caplog.records


def test_a_worker_that_begins_after_a_renewal_serves_the_renewed_certificate(
    tmp_path: Path,
) -> None:
    """Its parent has loaded the one before, and forks it in the place of a worker that died."""
    files, renewed = made(tmp_path / "a", ends=30 * DAY), made(tmp_path / "b", ends=90 * DAY)
    loaded = load_tls(files, time.time())
    renewed.key.replace(files.key)
    renewed.certificate.replace(files.certificate)
    served = ServedTls(files, loaded)
    served.check()
    assert served.gauge().value == pytest.approx(90 * 86400, abs=60)


def test_files_are_loaded_again_when_asked(tmp_path: Path) -> None:
    files = made(tmp_path / "a")
    served = ServedTls(files, load_tls(files, time.time()))
    first, served.must_reload = served.context, True
    served.check()
    assert served.context is not first
    assert not served.must_reload


def test_an_expiring_certificate_is_told_of_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, clock = made(tmp_path / "a", ends=90 * DAY), Moving()
    served = ServedTls(files, load_tls(files, clock()), clock=clock)
    clock.now += 75 * 86400
    served.check()
    assert not caplog.records
    clock.now += 2 * 86400
    served.check()
    served.check()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "expires in 12 days" in caplog.text
    clock.now += 86400
    served.check()
    assert len(caplog.records) == 2
    clock.now += 13 * 86400
    served.check()
    assert caplog.records[-1].levelname == "ERROR"
    assert served.gauge().value < 0
