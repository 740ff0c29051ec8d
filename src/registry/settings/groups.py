"""Groups of settings: limits, delays of the collector, rates of scrubbing and sealing, billing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    Self,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from cloudcore.clock import MICROSECONDS
from registry.settings.texts import SettingsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_INLINE_BYTES: Final = 16 * 1024
"""Upper limit of the setting `inline_max_bytes`."""
MOST_PORT: Final = 65535
_MOST_SECONDS: Final = 100 * 366 * 24 * 3600
"""A hundred years: a time that far in the future still fits the database's integers."""
_RANGES: Final = {
    "port": (0, MOST_PORT),
    "s3_port": (0, MOST_PORT),
    "email_port": (1, MOST_PORT),
    "email_rate": (1, 1_000_000),
    "compute_first_uid": (65_536, 2**32 - 2 * 65_536),
    "compute_disk_mb": (16, 1024**2),
    "database_first_uid": (65_536, 2**32 - 2 * 65_536),
    "workers": (1, 1000),
    "store_s3_connect_seconds": (1, 60),
    "store_s3_read_seconds": (1, 300),
    "store_s3_buffer_mb": (64, 1024**2),
    "cache_bytes": (0, 1024**5),
    "container_password_seconds": (900, _MOST_SECONDS),
    "scrub_every_seconds": (3600, _MOST_SECONDS),
    "inline_max_bytes": (0, MOST_INLINE_BYTES),
    "drain_seconds": (0, 3600),
}


class Microseconds:
    """A property that returns, in microseconds, a setting given in seconds."""

    def __init__(self, seconds: str) -> None:
        self._seconds = seconds

    @overload
    def __get__(self, settings: None, _owner: type) -> Self: ...

    @overload
    def __get__(self, settings: object, _owner: type) -> int: ...

    def __get__(self, settings: object | None, _owner: type) -> int | Self:
        """Return the value in microseconds; on the class itself, return the property."""
        if settings is None:
            return self
        return int(getattr(settings, self._seconds)) * MICROSECONDS


def check_numbers(settings: DataclassInstance) -> None:
    """Raise SettingsError if a number is out of its range."""
    for item in fields(settings):
        value, name = getattr(settings, item.name), item.name
        if not isinstance(value, int):
            continue
        least, most = _RANGES.get(name, (0, _MOST_SECONDS if name.endswith("_seconds") else 2**53))
        if not least <= value <= most:
            raise SettingsError(f"{name} is a number from {least} to {most}, not {value}")


def choice_problem(settings: DataclassInstance) -> str:
    """Return an error message if a `Literal` setting has a value that is not allowed, else ""."""
    for name, words in _choices_of(type(settings)).items():
        given = getattr(settings, name)
        if given not in words:
            texts = [each or "empty" for each in words]
            is_pair = len(texts) == 2 and not name.endswith("_driver")
            choice = " or ".join(texts) if is_pair else f"one of {', '.join(texts)}"
            return f"{name} is {choice}, not {given!r}"
    return ""


@cache
def _choices_of(kind: type) -> Mapping[str, Sequence[str]]:
    """Map the name of each `Literal` setting of a class to its allowed values."""
    return {
        name: get_args(each)
        for name, each in get_type_hints(kind).items()
        if get_origin(each) is Literal
    }


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of blobs, uploads and requests. Sizes in bytes, times in seconds."""

    max_blob_bytes: int = 100 * 1024**3
    """Maximum bytes of a blob."""
    upload_idle_seconds: int = 24 * 3600
    """Time without a request after which an upload session ends."""
    max_open_uploads: int = 5000
    """Maximum number of open upload sessions of an account; one more is answered 429."""
    max_open_uploads_per_repository: int = 1000
    """Maximum number of open upload sessions of a repository."""
    max_bucket_bytes: int = 1024**4
    """Maximum bytes that an account has in buckets."""
    inline_max_bytes: int = MOST_INLINE_BYTES
    """Size up to which a blob is stored in the database, and not in a file; 0: none is."""
    kept_answers_bytes: int = 32 * 1024**2
    """Memory of a worker for responses that it can repeat; 0: none are kept."""
    touch_after_seconds: int = 12 * 3600
    """Age of a blob's last use in a repository from which a HEAD renews it, while no manifest
    refers to the blob; at most half of `gc_grace_seconds` counts."""
    request_seconds: int = 0
    """Time after which the server ends any request, receiving or sending; 0: no limit."""
    drain_seconds: int = 0
    """Time after SIGTERM in which the server still takes requests but reports that it is not ready,
    before it drains."""

    upload_idle = Microseconds("upload_idle_seconds")
    """`upload_idle_seconds` in microseconds."""
    touch_after = Microseconds("touch_after_seconds")
    """`touch_after_seconds` in microseconds."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays before each step of the collector, in seconds.

    The collector is safe with all of them at 0, since foreign keys and locks protect what is in
    use. The delays give clients time to use a blob they have found, and operators time to recover.
    """

    gc_grace_seconds: int = 24 * 3600
    """Time that an unreferenced blob stays in its repository after its last use."""
    gc_condemned_seconds: int = 900
    """Time that an unlinked object is kept for another push of the same bytes."""
    gc_quarantine_seconds: int = 3600
    """Time for which the bytes of a swept object can be recovered."""
    gc_orphan_seconds: int = 7 * 24 * 3600
    """Time after which stored files without a row are deleted."""

    grace = Microseconds("gc_grace_seconds")
    condemned = Microseconds("gc_condemned_seconds")
    orphan = Microseconds("gc_orphan_seconds")
    quarantine = Microseconds("gc_quarantine_seconds")


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """Period and rate of the background scrub, which looks for damaged bytes."""

    scrub_every_seconds: int = 30 * 24 * 3600
    """Time within which the scrub in the background reads the bytes of every blob and manifest."""
    scrub_rate_bytes: int = 32 * 1024**2
    """Bytes that the scrub may read per second; 0 turns it off."""

    every = Microseconds("scrub_every_seconds")


@dataclass(frozen=True, slots=True)
class PlainSealing:
    """Rate of the background run that seals plain blobs."""

    seal_rate_bytes: int = 32 * 1024**2
    """Bytes per second that the run which seals plain blobs may read; 0 turns it off."""


@dataclass(frozen=True, slots=True)
class BillingSettings:
    """The payment processor for invoices, and its key."""

    payment_processor: Literal["embedded", "stripe"] = "embedded"
    """``embedded``: test cards, which move no money; ``stripe``: Stripe."""
    stripe_key_file: str = ""
    """File of the secret key of Stripe; other users must not be able to read it."""
    stripe_endpoint: str = ""
    """URL of Stripe's API; empty: Stripe's own."""

    @property
    def problem(self) -> str:
        """Return the first problem, with the setting's name before it, or an empty string."""
        if self.payment_processor == "stripe" and not self.stripe_key_file:
            return "payment_processor stripe needs stripe_key_file, the file of its secret key"
        return ""

    def read_key(self) -> str:
        """Return the secret key of Stripe.

        Raise `ValueError` if the file cannot be read, other users can read it, or it has no key.
        """
        path = Path(self.stripe_key_file)
        try:
            mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read {path}: {error}") from None
        if mode & 0o077:
            raise ValueError(f"others can read {path}: chmod 600 it")
        if not text or len(text.split()) != 1:
            raise ValueError(f"{path} has no key")
        return text
