"""What the root key derives: always the same for a context, and another for any other."""

from __future__ import annotations

from cloudcore.keyring import KEY_BYTES, Keyring


def test_what_is_derived_depends_on_key_and_context_alone() -> None:
    one, other = Keyring(b"1" * KEY_BYTES), Keyring(b"2" * KEY_BYTES)
    assert one.derive("salt") == Keyring(b"1" * KEY_BYTES).derive("salt")
    assert len({one.derive("salt"), one.derive("Salt"), other.derive("salt")}) == 3
    assert len(one.derive("salt")) == 32
