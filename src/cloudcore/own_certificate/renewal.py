"""Renew the certificate for a server's own names, with pauses after failed orders."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from cloudcore.acme.client import AcmeRefused, AcmeUnreachable
from cloudcore.errors import PlatformError
from cloudcore.files import replace_file
from cloudcore.key_pairs import key_pem
from cloudcore.own_certificate.paths import ORDERED, own_certificate, pause_file
from cloudcore.serving.counters import Count
from cloudcore.serving.tls.files import (
    STAND_IN,
    TlsFilesError,
    TlsIdentity,
    TlsNotYetValidError,
    load_tls,
)
from cloudcore.serving.tls.paths import TlsFiles
from cloudcore.serving.tls.validation import Validations

_STAND_IN_LIFE: Final = timedelta(days=3650)
_MOST_COMMON_NAME: Final = 64


def prepare(folder: Path, name: str, now: float) -> bool:
    """Make the folder; return True if it has a usable certificate from an authority.

    If it has no usable certificate at all, write a self-signed one, which no client trusts, so that
    the server can listen. `name` is the server's host name, `now` the Unix time in seconds.

    Raise `TlsNotYetValidError` if a certificate exists but is not valid yet, because the clock is
    behind; the certificate stays. Raise `OSError` if the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = own_certificate(folder)
    try:
        return not load_tls(files, now).is_stand_in
    except TlsNotYetValidError:
        raise
    except TlsFilesError:
        key = ec.generate_private_key(ec.SECP256R1())
        replace_file(files.certificate, key_pem(key) + _stand_in(name, key, now))
        return False


def names_in(pem: bytes) -> set[str]:
    """Return the host names and addresses of the first certificate in a PEM file."""
    first = x509.load_pem_x509_certificates(pem)[0]
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def load_account_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key of the ACME account stored in `folder`; generate it if there is none."""
    path = folder / "account.pem"
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        key = ec.generate_private_key(ec.SECP256R1())
        replace_file(path, key_pem(key))
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _stand_in(name: str, key: ec.EllipticCurvePrivateKey, now: float) -> bytes:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, STAND_IN),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:_MOST_COMMON_NAME]),
        ]
    )
    begins = datetime.fromtimestamp(now, UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + _STAND_IN_LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


FIRST_DELAY: Final = 120.0
MOST_DELAY: Final = 6 * 3600.0
"""Maximum seconds between failing orders. With `FIRST_DELAY`, this makes five orders in the first
hour, as many as public authorities accept, and later four a day."""
_MOST_DOUBLINGS: Final = 20


class Pause(NamedTuple):
    """The number of failed orders in a row, and when the pause after them ends."""

    wanted: str
    """Describes what was ordered; the pause does not apply to anything else."""
    failures: int = 0
    until: float = 0.0
    """Unix time in seconds."""

    def longer(self, now: float, spread: float) -> Pause:
        """Return the pause after one more failure.

        `spread`, from 0 to 1, lengthens the pause by up to a tenth.
        """
        delay = min(FIRST_DELAY * 2**self.failures, MOST_DELAY) * (1 + spread / 10)
        return Pause(self.wanted, min(self.failures + 1, _MOST_DOUBLINGS), now + delay)


_DECODER: Final = msgspec.json.Decoder(Pause)


def _read_pause(path: Path, wanted: str, now: float) -> Pause:
    """Return the pause that an earlier process stored for the same `wanted`, or an empty pause.

    A pause that ends more than twice `MOST_DELAY` from now was stored under a wrong clock, and is
    ignored.
    """
    none = Pause(wanted)
    try:
        found = _DECODER.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return none
    is_ours = found.wanted == wanted and 0 <= found.failures <= _MOST_DOUBLINGS
    return found if is_ours and found.until <= now + 2 * MOST_DELAY else none


def _keep_pause(path: Path, pause: Pause) -> None:
    """Store a pause, or delete the stored one if `pause` has no failures.

    Errors are ignored; the only effect is that a restarted server does not see the change.
    """
    with suppress(OSError):
        if pause.failures:
            replace_file(path, msgspec.json.encode(pause))
        else:
            path.unlink(missing_ok=True)


logger = logging.getLogger("cloudcore.acme")

_LONGEST_SLEEP: Final = 3600.0
"""Maximum seconds between reads of the clock, since it may be set, or the machine may sleep."""
_CLOCK: Final = "it is due again at once: is the clock of this machine right?"
_ADVICE: Final = {
    "rejectedIdentifier": "the authority signs no such name; correct {setting}",
    "unauthorized": "another server answers at {reach}",
    "connection": "the authority must reach {reach}",
    "tls": "another server answers at {reach}",
    "dns": "the authority cannot resolve the name: give it an address record",
    "caa": "a CAA record of the domain allows other authorities only; add this one",
    "externalAccountRequired": "this authority needs an account made beforehand, which Entrepot"
    " does not support; name another directory",
    "invalidContact": "correct {setting}_EMAIL",
}


class CertificateSubject(NamedTuple):
    """The names of a server's certificate, and texts for logs and errors."""

    names: tuple[str, ...]
    """Host names in lower case, or addresses."""
    files: TlsFiles
    authority: str
    """The authority that signs: its URL or its name."""
    reach: str = ""
    """Words for the port and the names that the authority must be able to reach."""
    setting: str = ""
    """The environment variable that sets `names`; the names of related variables begin with it."""

    @property
    def listed(self) -> str:
        """Return the names as one string."""
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """Obtains and renews a server's certificate; only one worker should run `keep`."""

    subject: CertificateSubject
    order: Callable[[], Awaitable[None]]
    """Orders the certificate and writes it to `subject.files`."""
    validations: Validations | None = None
    """The proofs for the authority; None if it needs none."""
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    """Returns the Unix time in seconds."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    spread: Callable[[], float] = random.random
    """Returns a number from 0 to 1."""

    async def keep(self, count: Count) -> None:
        """Order the certificate whenever it is due, until cancelled; count the orders."""
        path = pause_file(self.subject.files)
        none = Pause(f"{self.subject.listed} {self.subject.reach}")
        pause = _read_pause(path, none.wanted, self.clock())
        if pause.until > self.clock():
            logger.warning(
                "the certificate of %s is ordered again in %.0f min (failed so far: %d); to order"
                " it now, delete %s and restart",
                *(self.subject.listed, (pause.until - self.clock()) / 60, pause.failures, path),
            )
        while True:
            await self._sleep_until(max(self._due_at(), pause.until))
            logger.info("ordering the certificate of %s", self.subject.listed)
            problem, code = await self._try()
            count(f"{ORDERED}.{'failed' if problem else 'succeeded'}", 1)
            if not problem and not self.is_due:
                pause = none
                _keep_pause(path, pause)
                logger.info(
                    "the certificate is signed and served: %s", self.subject.files.certificate
                )
                continue
            pause = pause.longer(self.clock(), self.spread())
            _keep_pause(path, pause)
            self._tell(problem or _CLOCK, code, pause.until - self.clock())

    @property
    def is_due(self) -> bool:
        """Return True if an order is due now."""
        return self._due_at() <= self.clock()

    async def _try(self) -> tuple[str, str]:
        """Order once; return (error message, ACME problem type), both empty after a success."""
        try:
            await self.order()
        except AcmeRefused as error:
            return str(error), error.code
        except (AcmeUnreachable, PlatformError, OSError) as error:
            return str(error) or type(error).__name__, ""
        except Exception as error:
            logger.exception("the order of a certificate failed")  # and is tried again all the same
            return repr(error), ""
        return "", ""

    def _due_at(self) -> float:
        """Return when to order, in Unix time: when a third of the lifetime is left.

        Return 0 (now) if there is no certificate from an authority for all the names.
        """
        identity = self._served()
        if identity is None or identity.is_stand_in:
            return 0.0
        if not set(self.subject.names) <= names_in(self.subject.files.certificate.read_bytes()):
            return 0.0
        return identity.expires_at - (identity.expires_at - identity.begins_at) / 3

    def _served(self) -> TlsIdentity | None:
        try:
            return load_tls(self.subject.files, self.clock())
        except TlsFilesError:
            return None

    def _tell(self, problem: str, code: str, delay: float) -> None:
        subject, serves = self.subject, self._served()
        advice = _ADVICE.get(code, "if it goes on, see docs/how-to/tls.md").format(
            setting=subject.setting, reach=subject.reach
        )
        stays = (
            "clients refuse what is served until then"
            if serves is None or serves.is_stand_in
            else f"the one before stays, for {(serves.expires_at - self.clock()) / 3600:.0f} hours"
        )
        logger.error(
            "%s signed no certificate of %s: %s; %s; it is asked again in %d minutes; %s",
            *(subject.authority, subject.listed, json.dumps(problem)),
            *(advice, round(delay / 60), stays),
        )

    async def _sleep_until(self, moment: float) -> None:
        while (left := moment - self.clock()) > 0:
            await self.sleep(min(left, _LONGEST_SLEEP))
