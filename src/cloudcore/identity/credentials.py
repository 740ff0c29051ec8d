"""Generate and hash random secrets, and seal values that browsers store."""

from __future__ import annotations

import re
import secrets
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from cloudcore.keyring import Keyring, KeyringError

_BASE32: Final = string.ascii_uppercase + "234567"
_UUID: Final = "([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})"

S = TypeVar("S", bound=msgspec.Struct)


def hash_of(secret: str) -> str:
    """Return the hexadecimal SHA-256 under which a random secret is stored."""
    return sha256(secret.encode()).hexdigest()


def random_text(alphabet: str, length: int) -> str:
    """Return a random text of `length` characters from `alphabet`."""
    return "".join(secrets.choice(alphabet) for _ in range(length))


def new_key_id(prefix: str) -> str:
    """Return the public id of a new key pair: the prefix and 90 random bits."""
    return prefix + random_text(_BASE32, 18)


def text_with_id(prefix: str, row_id: str, secret: str) -> str:
    """Return `secret` with a prefix, which secret scanners recognize, and the id of its row."""
    return f"{prefix}{row_id.replace('-', '')}_{secret}"


def id_in(prefix: str, text: str) -> str | None:
    """Return the row id in a text made by `text_with_id`, or None if the text is malformed."""
    found = re.fullmatch(f"{prefix}{_UUID}_.+", text)
    return None if found is None else "-".join(found.groups())


def sealed_text(keyring: Keyring, content: msgspec.Struct, context: str) -> str:
    """Seal a value for a browser to store, in a cookie or a hidden field of a form.

    `context` names the use; a value opens only for the same use.
    """
    return urlsafe_b64encode(keyring.seal(msgspec.json.encode(content), context)).decode()


def opened_text(keyring: Keyring, text: str | None, context: str, kind: type[S]) -> S | None:
    """Return the value (a `kind`) in a sealed text, or None if the text is missing or invalid."""
    try:
        opened = keyring.open(urlsafe_b64decode(text or ""), context)
        return msgspec.json.decode(opened, type=kind)
    except (KeyringError, ValueError):
        return None
