"""``/v1/keys/{id}/encrypt``, ``/decrypt`` and ``/generate-data-key``.

Each use leaves an event in the audit log, without what was encrypted. No answer is kept: a repeated
request is another use, which a key that was disabled meanwhile refuses.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from typing import Annotated, Final, TypeVar

from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cloudcore.errors import InvalidInput
from cloudcore.kms.key import KEY, Key
from cloudcore.kms.key_routes import KEYS
from cloudcore.kms.needs import KmsNeeds
from cloudcore.kms.references import key_to_use
from cloudcore.kms.rules import check_usable
from cloudcore.kms.sealing import OVERHEAD
from cloudcore.web.app import Needs
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody

MAX_PLAINTEXT: Final = 4096
"""Most bytes that a request encrypts; larger data are encrypted with a data key."""
_DATA_KEY_BYTES: Final = 32
_BASE64: Final = {"contentEncoding": "base64"}

T = TypeVar("T")
Base64 = Annotated[str, Meta(extra_json_schema=_BASE64)]
_GivenPlaintext = Annotated[
    str,
    Meta(
        max_length=(MAX_PLAINTEXT + 2) // 3 * 4,
        extra_json_schema=_BASE64,
        description="Base64 of 1 to 4,096 bytes.",
    ),
]
_GivenCiphertext = Annotated[
    str,
    Meta(
        max_length=(MAX_PLAINTEXT + OVERHEAD + 2) // 3 * 4,
        extra_json_schema=_BASE64,
        description="Base64 of what an earlier request returned.",
    ),
]


class Encrypt(RequestBody):
    """What to encrypt."""

    plaintext: _GivenPlaintext


class Decrypt(RequestBody):
    """What to decrypt."""

    ciphertext: _GivenCiphertext


class Encrypted(ResponseBody):
    """A ciphertext; it opens with the same key alone."""

    ciphertext: Base64
    key_version: int


class Decrypted(ResponseBody):
    """A plaintext."""

    plaintext: Base64
    key_version: int
    """The version that had encrypted it."""


class DataKey(ResponseBody):
    """A new data key of 32 bytes."""

    plaintext: Base64
    """To encrypt with now, and to forget then."""
    ciphertext: Base64
    """To keep with the data; `decrypt` returns the plaintext."""
    key_version: int


@post(
    KEY.path_of_one + "/encrypt",
    status_code=200,
    opt={"action": "kms:UseKey", "statuses": (409,)},
)
async def encrypt(
    key_id: FromPath[str],
    data: JSONBody[Encrypt],
    ctx: NamedDependency[RequestContext],
    needs: Needs[KmsNeeds],
) -> Reply[Encrypted]:
    """Encrypt up to 4,096 bytes under the current version of an `aes-256` key."""
    key = await KEYS.authorized(ctx, key_id)
    check_usable(key)
    plaintext = _decoded("plaintext", data.plaintext, MAX_PLAINTEXT)
    sealed = await needs.vault.seal(key.account_id, key.id, "encrypt", plaintext)
    answer = Encrypted(ciphertext=_encoded(sealed.value), key_version=sealed.version)
    return await _answer_use(ctx, key, "encrypt", answer)


@post(
    KEY.path_of_one + "/decrypt",
    status_code=200,
    opt={"action": "kms:UseKey", "statuses": (409,)},
)
async def decrypt(
    key_id: FromPath[str],
    data: JSONBody[Decrypt],
    ctx: NamedDependency[RequestContext],
    needs: Needs[KmsNeeds],
) -> Reply[Decrypted]:
    """Decrypt what this key has encrypted, under whichever of its versions."""
    key = await KEYS.authorized(ctx, key_id)
    check_usable(key)
    ciphertext = _decoded("ciphertext", data.ciphertext, MAX_PLAINTEXT + OVERHEAD)
    opened = await needs.vault.open(key.account_id, key.id, "encrypt", ciphertext)
    answer = Decrypted(plaintext=_encoded(opened.value), key_version=opened.version)
    return await _answer_use(ctx, key, "decrypt", answer)


@post(
    KEY.path_of_one + "/generate-data-key",
    status_code=200,
    opt={"action": "kms:UseKey", "statuses": (409,)},
)
async def generate_data_key(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext], needs: Needs[KmsNeeds]
) -> Reply[DataKey]:
    """Make a data key of 32 random bytes, in plain and encrypted under the key."""
    key = await KEYS.authorized(ctx, key_id)
    check_usable(key)
    plaintext = os.urandom(_DATA_KEY_BYTES)
    sealed = await needs.vault.seal(key.account_id, key.id, "encrypt", plaintext)
    answer = DataKey(
        plaintext=_encoded(plaintext),
        ciphertext=_encoded(sealed.value),
        key_version=sealed.version,
    )
    return await _answer_use(ctx, key, "generate_data_key", answer)


async def _answer_use(ctx: RequestContext, key: Key, use: str, answer: T) -> Reply[T]:
    """Answer and record the use of a key, unless the key can be used no longer."""
    ids = (key.account_id, key.id)
    return await ctx.commit(key_to_use, *ids, wrap=lambda _: answer, told=lambda _: {"use": use})


def _encoded(value: bytes) -> str:
    return b64encode(value).decode()


def _decoded(field: str, text: str, most: int) -> bytes:
    """Decode base64 (RFC 4648 §4), which must be padded and have no other spelling."""
    try:
        value = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if not value or _encoded(value) != text:
        raise InvalidInput(
            f"{field}: base64 with padding (RFC 4648, section 4) of at least one byte",
            field=field,
            reason="malformed",
        )
    if len(value) > most:
        raise InvalidInput(f"{field}: at most {most} bytes", field=field, reason="out_of_range")
    return value


HANDLERS: Final = (encrypt, decrypt, generate_data_key)
