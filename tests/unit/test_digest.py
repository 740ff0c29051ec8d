"""Digests: one grammar, three algorithms, no lenience."""

from __future__ import annotations

import hashlib

import pytest
from blake3 import blake3

from registry.errors import DigestInvalid
from registry.oci.digest import ALGORITHMS, Digest, digest_of, new_hasher, parse_algorithm

# The published digests of no bytes at all.
EMPTY = {
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sha512": "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
    "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
    "blake3": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_digest_is_algorithm_and_hex(algorithm: str) -> None:
    digest = digest_of(b"", algorithm)
    assert digest == f"{algorithm}:{EMPTY[algorithm]}"
    assert digest.algorithm == algorithm
    assert Digest.parse(digest) == digest


def test_sha256_is_the_default() -> None:
    assert digest_of(b"x") == "sha256:" + hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_hashers_take_bytes_in_parts(algorithm: str) -> None:
    hasher = new_hasher(algorithm)
    hasher.update(b"one ")
    hasher.update(memoryview(b"two"))
    whole = blake3(b"one two") if algorithm == "blake3" else hashlib.new(algorithm, b"one two")
    assert hasher.hexdigest() == whole.hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256",
        "sha256:",
        ":" + EMPTY["sha256"],
        EMPTY["sha256"],
        "sha256:" + EMPTY["sha256"][:-1],
        "sha256:" + EMPTY["sha256"] + "0",
        "sha256:" + EMPTY["sha256"].upper(),
        "SHA256:" + EMPTY["sha256"],
        "sha256:" + EMPTY["sha256"] + "\n",
        " sha256:" + EMPTY["sha256"],
        "sha256:" + EMPTY["sha256"][:-1] + "g",
        "sha256:" + EMPTY["sha256"][:-1] + "\uff10",
        "sha256:" + EMPTY["sha512"],
        "sha512:" + EMPTY["sha256"],
        "blake3:" + EMPTY["sha512"],
        "md5:d41d8cd98f00b204e9800998ecf8427e",
        "sha384:" + "0" * 96,
        "sha256+b64:" + EMPTY["sha256"],
    ],
)
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(DigestInvalid) as refusal:
        Digest.parse(text)
    assert refusal.value.params == {"digest": text}


def test_a_long_text_is_quoted_in_part() -> None:
    with pytest.raises(DigestInvalid) as refusal:
        Digest.parse("x" * 1_000_000)
    assert refusal.value.params == {"digest": "x" * 135 + "…"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_may_be_asked_for(algorithm: str) -> None:
    assert parse_algorithm(algorithm) == algorithm


@pytest.mark.parametrize("text", ["", "SHA256", "sha-256", "sha256 ", "md5", "a" * 1000])
def test_other_algorithms_are_refused(text: str) -> None:
    with pytest.raises(DigestInvalid) as refusal:
        parse_algorithm(text)
    assert refusal.value.params == {"algorithm": text[:64]}
