"""The process that parses large manifests for one worker; `manifest_reading` starts it.

It reads one manifest at a time from the socket on its standard input, and exits when the other end
is closed, which the kernel does if the worker dies. Its parent starts it with SIGINT and SIGTERM
blocked: a server that drains still needs it.

A frame of the protocol is a length in bytes (four bytes, big-endian) and a MessagePack document of
that length. The raw body of the manifest follows the frame of its question. This process imports
little.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from registry.errors import DigestMismatch, ManifestInvalid, ManifestTypeUnsupported
from registry.oci.digest import Digest
from registry.oci.manifest import Descriptor, Manifest, ReadManifest, read_manifest

PORTION: Final = 250
"""Descriptors decoded in one call; each call holds the interpreter's lock for less than 1 ms."""

_LENGTH: Final = struct.Struct(">I")
_REFUSALS: Final = {
    each.__name__: each for each in (DigestMismatch, ManifestInvalid, ManifestTypeUnsupported)
}

Refused = DigestMismatch | ManifestInvalid | ManifestTypeUnsupported


class ManifestQuestion(msgspec.Struct, frozen=True, array_like=True):
    """How to read the manifest of `size` bytes that follows."""

    size: int
    content_type: str | None
    expected: str | None


class ParsedManifest(msgspec.Struct, frozen=True, tag=True):
    """The parsed manifest."""

    manifest: Manifest
    """Without `layers` and `children`, which follow."""
    layers: list[bytes]
    """Each a MessagePack document of at most `PORTION` descriptors."""
    children: list[bytes]
    digest: Digest
    sha512: Digest


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """The error that `read_manifest` raised."""

    name: str
    message: str
    params: dict[str, str]


class OutOfMemory(msgspec.Struct, frozen=True, tag=True):
    """The manifest needs more memory than the process may use."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """An unexpected exception; `trace` is its traceback, for the log."""

    trace: str


ManifestAnswer = ParsedManifest | Refusal | OutOfMemory | Failed


def _digest(kind: type, value: str) -> Digest:
    assert kind is Digest
    return Digest(value)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)  # of a `Digest`
_question_decoder: Final = msgspec.msgpack.Decoder(ManifestQuestion)
_answer_decoder: Final[msgspec.msgpack.Decoder[ManifestAnswer]] = msgspec.msgpack.Decoder(
    ManifestAnswer, dec_hook=_digest
)
_portion_decoder: Final = msgspec.msgpack.Decoder(list[Descriptor])


def parsed_answer(read: ReadManifest) -> ParsedManifest:
    """Return the answer for a parsed manifest."""
    manifest = msgspec.structs.replace(read.manifest, layers=(), children=())
    portions = (_portions(read.manifest.layers), _portions(read.manifest.children))
    return ParsedManifest(manifest, *portions, digest=read.digest, sha512=read.sha512)


def _portions(descriptors: Sequence[Descriptor]) -> list[bytes]:
    starts = range(0, len(descriptors), PORTION)
    return [_encoder.encode(descriptors[start : start + PORTION]) for start in starts]


def manifest_of(answer: ParsedManifest) -> ReadManifest:
    """Return the parsed manifest of an answer."""
    manifest = msgspec.structs.replace(
        answer.manifest, layers=_together(answer.layers), children=_together(answer.children)
    )
    return ReadManifest(manifest, answer.digest, answer.sha512)


def _together(portions: Iterable[bytes]) -> tuple[Descriptor, ...]:
    return tuple(each for portion in portions for each in _portion_decoder.decode(portion))


def refusal(error: Refused) -> Refusal:
    """Return the answer for a manifest that `read_manifest` refused."""
    return Refusal(type(error).__name__, error.message, error.params)


def refusal_of(answer: Refusal) -> Refused:
    """Return the error of an answer, to be raised."""
    return _REFUSALS[answer.name](answer.message, **answer.params)


def send(
    stream: socket.socket, message: ManifestQuestion | ManifestAnswer, body: bytes = b""
) -> None:
    """Send a message and, after a question, the body."""
    frame = _encoder.encode(message)
    stream.sendall(_LENGTH.pack(len(frame)) + frame)
    stream.sendall(body)


def receive_question(stream: socket.socket) -> tuple[ManifestQuestion, bytes]:
    """Return the next question and its body; raise EOFError if the other side is closed."""
    question = _question_decoder.decode(_frame(stream))
    return question, bytes(_exactly(stream, question.size))


def receive_answer(stream: socket.socket) -> ManifestAnswer:
    """Return the answer to a question that was sent; raise EOFError if the other side is closed."""
    return _answer_decoder.decode(_frame(stream))


def _frame(stream: socket.socket) -> bytearray:
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: socket.socket, length: int) -> bytearray:
    received = bytearray(length)
    left = memoryview(received)
    while left:
        count = stream.recv_into(left)
        if not count:
            raise EOFError
        left = left[count:]
    return received


MEMORY_BYTES: Final = 192 * 1024 * 1024
"""Memory for parsing. The worst manifest that is accepted needs 40 MiB beside its own bytes."""
NICENESS: Final = 5
"""Added to the process's niceness, so that small requests run first on a busy machine."""


def main() -> None:
    """Read manifests until the parent closes the socket."""
    bound_memory()
    os.nice(NICENESS)
    with socket.socket(fileno=0) as stream, contextlib.suppress(EOFError, ConnectionError):
        while True:
            question, body = receive_question(stream)
            send(stream, answer(question, body))


def bound_memory() -> None:
    """Limit this process to `MEMORY_BYTES` more than it has now; disable core files."""
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - pathlib takes long to import
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(question: ManifestQuestion, body: bytes) -> ManifestAnswer:
    """Parse a manifest and return the answer for the worker."""
    expected = Digest(question.expected) if question.expected is not None else None
    try:
        return parsed_answer(read_manifest(body, question.content_type, expected))
    except (DigestMismatch, ManifestInvalid) as error:
        return refusal(error)
    except MemoryError:
        return OutOfMemory()
    except Exception:  # noqa: BLE001 - the parent logs it
        import traceback  # noqa: PLC0415 - takes long, and is for bugs

        return Failed(traceback.format_exc())


if __name__ == "__main__":
    main()
