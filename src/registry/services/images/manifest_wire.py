"""What a worker and its manifest process say to each other: frames over a stream socket.

A frame is its length in bytes (four, big-endian) and a MessagePack document; the body of a manifest
follows its question as it is. Imported by the manifest process, so it imports little.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from registry.errors import DigestMismatch, ManifestInvalid, ManifestTypeUnsupported
from registry.oci.digest import Digest
from registry.oci.manifest import Descriptor, Manifest
from registry.oci.pushed_manifest import ReadManifest

PORTION: Final = 250
"""Descriptors decoded in one call, which holds the interpreter's lock a fraction of a
millisecond."""

_LENGTH: Final = struct.Struct(">I")
_REFUSALS: Final = {
    each.__name__: each for each in (DigestMismatch, ManifestInvalid, ManifestTypeUnsupported)
}

Refused = DigestMismatch | ManifestInvalid | ManifestTypeUnsupported


class Question(msgspec.Struct, frozen=True, array_like=True):
    """How to read the manifest of `size` bytes that follows."""

    size: int
    content_type: str | None
    expected: str | None


class Taken(msgspec.Struct, frozen=True, tag=True):
    """A manifest that was read."""

    manifest: Manifest
    """Without its lists of descriptors."""
    layers: list[bytes]
    """Portions of at most `PORTION` descriptors, each a document of its own."""
    children: list[bytes]
    digest: Digest
    sha512: Digest


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """An error of `read_manifest`."""

    name: str
    message: str
    params: dict[str, str]


class OutOfMemory(msgspec.Struct, frozen=True, tag=True):
    """The process may not take the memory that the manifest needs."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A bug; `trace` is for the log."""

    trace: str


Answer = Taken | Refusal | OutOfMemory | Failed


def _digest(kind: type, value: str) -> Digest:
    assert kind is Digest
    return Digest(value)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)  # of a `Digest`
_question_decoder: Final = msgspec.msgpack.Decoder(Question)
_answer_decoder: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(
    Answer, dec_hook=_digest
)
_portion_decoder: Final = msgspec.msgpack.Decoder(list[Descriptor])


def taken(read: ReadManifest) -> Taken:
    """Return the answer that says what was read."""
    manifest = msgspec.structs.replace(read.manifest, layers=(), children=())
    portions = (_portions(read.manifest.layers), _portions(read.manifest.children))
    return Taken(manifest, *portions, digest=read.digest, sha512=read.sha512)


def _portions(descriptors: Sequence[Descriptor]) -> list[bytes]:
    starts = range(0, len(descriptors), PORTION)
    return [_encoder.encode(descriptors[start : start + PORTION]) for start in starts]


def read_of(answer: Taken) -> ReadManifest:
    """Return what an answer says was read."""
    manifest = msgspec.structs.replace(
        answer.manifest, layers=_together(answer.layers), children=_together(answer.children)
    )
    return ReadManifest(manifest, answer.digest, answer.sha512)


def _together(portions: Iterable[bytes]) -> tuple[Descriptor, ...]:
    return tuple(each for portion in portions for each in _portion_decoder.decode(portion))


def refusal(error: Refused) -> Refusal:
    """Return the answer that says why a manifest is refused."""
    return Refusal(type(error).__name__, error.message, error.params)


def refusal_of(answer: Refusal) -> Refused:
    """Return the error that an answer tells of."""
    return _REFUSALS[answer.name](answer.message, **answer.params)


def send(stream: socket.socket, message: Question | Answer, body: bytes = b"") -> None:
    """Send a message, and the body that follows a question."""
    frame = _encoder.encode(message)
    stream.sendall(_LENGTH.pack(len(frame)) + frame)
    stream.sendall(body)


def receive_question(stream: socket.socket) -> tuple[Question, bytes]:
    """Return the next question and its body.

    Raises:
        EOFError: the other side has closed the stream.

    """
    question = _question_decoder.decode(_frame(stream))
    return question, bytes(_exactly(stream, question.size))


def receive_answer(stream: socket.socket) -> Answer:
    """Return the answer to the question that was sent.

    Raises:
        EOFError: the other side has closed the stream.

    """
    return _answer_decoder.decode(_frame(stream))


def _frame(stream: socket.socket) -> bytearray:
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: socket.socket, count: int) -> bytearray:
    received = bytearray(count)
    left = memoryview(received)
    while left:
        taken = stream.recv_into(left)
        if not taken:
            raise EOFError
        left = left[taken:]
    return received
