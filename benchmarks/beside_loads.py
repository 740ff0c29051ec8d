"""The loads of `benchmarks.beside`: for each piece of work its largest input, made once."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from benchmarks.wire import Connection
from tests.live_signed_in import SignedIn, Tenant, access_key_that_logs_in
from tests.s3_signing import signed

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
MANIFEST_BYTES: Final = 4_000_000
BODY_BYTES: Final = 1_000_000
TAGS: Final = 200
FRAMES: Final = 512
"""What is sealed together, of 1 MiB each: of each second one a byte is asked for, and once more."""
_UNEQUAL: Final = (3 << 1998) + 385, (7 << 45) + 23
"""Primes of 2,000 and 48 bits: to test the larger takes long."""


class Sent(NamedTuple):
    """A request of a load."""

    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    url: str = ""
    """Of another plane than ``/v1`` and ``/v2``."""


Asked = Callable[[int, int], Sent]
"""Returns the request of a connection and its turn."""


class World:
    """A served install: acme presses, and its neighbour pulls."""

    def __init__(self, signed_in: SignedIn, s3_port: int) -> None:
        self.signed_in = signed_in
        self.s3_url = f"http://127.0.0.1:{s3_port}"
        self.url = signed_in.registry.url
        self.acme = signed_in.acme
        self._blobs: list[str] = []
        self._bearers: dict[str, str] = {}

    def prepare(self) -> None:
        """Store what the neighbour pulls: blobs of 4 and of 256 KiB."""
        for size in (4 << 10, 256 << 10):
            self._blobs.append(
                self.push_blob(self.signed_in.partner, bytes([len(self._blobs)]) * size)
            )

    def neighbour(self) -> Connection:
        """Return a connection of the neighbour."""
        return Connection(self.url, f"Authorization: {self.bearer(self.signed_in.partner)}")

    def pull(self, connection: Connection, turn: int) -> None:
        """Pull a blob of the neighbour."""
        path = f"/v2/partner/bench/blobs/{self._blobs[turn % len(self._blobs)]}"
        connection.send(connection.request("GET", path))
        head = connection.head()
        connection.discard(head)
        assert head.status == 200, head

    def bearer(self, tenant: Tenant) -> str:
        """Return a header's value that lets a tenant pull from and push to its repository."""
        if tenant.handle not in self._bearers:
            answer = httpx.get(
                f"{self.url}/v2/token",
                params={"scope": f"repository:{tenant.handle}/bench:pull,push"},
                auth=("token", tenant.password),
                timeout=60,
            )
            self._bearers[tenant.handle] = f"Bearer {answer.raise_for_status().json()['token']}"
        return self._bearers[tenant.handle]

    def push_blob(self, tenant: Tenant, data: bytes) -> str:
        """Push a blob whole; return its digest."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        httpx.post(
            f"{self.url}/v2/{tenant.handle}/bench/blobs/uploads/?digest={digest}",
            headers={
                "Authorization": self.bearer(tenant),
                "Content-Type": "application/octet-stream",
            },
            content=data,
            timeout=60,
        ).raise_for_status()
        return digest

    def push_manifest(self, document: Mapping[str, Any], tag: str) -> bytes:
        """Push a manifest of acme; return its bytes."""
        body = json.dumps(document).encode()
        self.push_manifest_bytes(body, tag)
        return body

    def push_manifest_bytes(self, body: bytes, tag: str) -> None:
        """Push the bytes of a manifest of acme."""
        httpx.put(
            f"{self.url}/v2/acme/bench/manifests/{tag}",
            headers={"Authorization": self.bearer(self.acme), "Content-Type": MANIFEST},
            content=body,
            timeout=60,
        ).raise_for_status()

    def push_large_manifest(self) -> bytes:
        """Push a manifest of four megabytes; return its bytes."""
        descriptor = {
            "mediaType": "application/octet-stream",
            "size": 2,
            "digest": self.push_blob(self.acme, b"{}"),
        }
        return self.push_manifest(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": descriptor,
                "layers": [descriptor],
                "annotations": _padding(),
            },
            "large",
        )

    def repository_id(self) -> str:
        """Return the id of acme's repository."""
        answer = httpx.get(f"{self.url}/v1/repositories", headers=self.acme.headers, timeout=60)
        found = answer.raise_for_status().json()["repositories"]
        return str(next(each["id"] for each in found if each["name"] == "bench"))

    def call(self, method: str, path: str, body: object) -> Sent:
        """Return a request of acme's to ``/v1``."""
        content = json.dumps(body).encode()
        return Sent(
            method, path, content, {**self.acme.headers, "Content-Type": "application/json"}
        )


def _small_requests(world: World) -> Asked:
    sent = world.call("POST", "/v1/certificates/upload", {})
    return lambda *_: sent


def _hostile_keys(world: World) -> Asked:
    """Return keys of RSA of which one prime is small, whose check takes long."""
    p, q = _UNEQUAL
    d = pow(65537, -1, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(65537, p * q)
    )
    key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    body = _upload(key.public_key(), _pem(key))
    return lambda *_: world.call("POST", "/v1/certificates/upload", body)


@cache
def _large_key() -> rsa.RSAPrivateKey:
    """Return a key of 4,096 bits, which takes seconds to make."""
    return rsa.generate_private_key(65537, 4096)


def _keys_of_other_kinds(world: World) -> Asked:
    """Return keys of DSA, whose reading is a power of large numbers."""
    key = _large_key()
    p, q, x = ((1 << bits) - 1 for bits in (9992, 256, 9984))
    parameters = _der(0x30, _integer(p) + _integer(q) + _integer(3))
    algorithm = _der(0x30, bytes.fromhex("06072a8648ce380401") + parameters)
    inner = base64.b64encode(_der(0x30, b"\2\1\0" + algorithm + _der(4, _integer(x)))).decode()
    body = _upload(
        key.public_key(), f"-----BEGIN PRIVATE KEY-----\n{inner}\n-----END PRIVATE KEY-----\n"
    )
    return lambda *_: world.call("POST", "/v1/certificates/upload", body)


def _uploads(world: World) -> Asked:
    """Return certificates of 4,096 bits with ten issuers, which do not fit at the very end."""
    key = _large_key()
    leaf = _certificate(key.public_key(), key)
    body = {**_upload(key.public_key(), _pem(key), leaf * 10), "certificate_pem": leaf}
    return lambda *_: world.call("POST", "/v1/certificates/upload", body)


def _slow_keys(world: World) -> Asked:
    return lambda number, turn: world.call(
        "POST", "/v1/keys", {"name": f"k{number}-{turn}", "key_spec": "rsa-4096"}
    )


def _slow_certificates(world: World) -> Asked:
    return lambda number, turn: world.call(
        "POST",
        "/v1/certificates",
        {"name": f"c{number}-{turn}", "domains": ["bench.test"], "key_algorithm": "rsa-4096"},
    )


def _identities(world: World) -> Asked:
    """Return new sending identities, each of which has a key of its own."""
    return lambda number, turn: world.call(
        "POST", "/v1/identities", {"kind": "domain", "value": f"i{number}-{turn}.example.com"}
    )


def _large_bodies(world: World) -> Asked:
    """Return bodies of a megabyte that are nothing but small values."""
    body = {
        "name": "p",
        "document": {"version": "1", "statements": ["x" * (BODY_BYTES // 19_000)] * 18_000},
    }
    sent = world.call("POST", "/v1/policies", body)
    return lambda *_: sent


def _policies(world: World) -> Asked:
    """Return documents of policies as long as they may be, with all that costs to look at."""
    statement = {"effect": "allow", "actions": ["registry:*"], "resources": ["crn:*:*:*:*"]}
    document = {"version": "1", "statements": [statement] * 50}
    return lambda number, turn: world.call(
        "POST", "/v1/policies", {"name": f"p{number}-{turn}", "document": document}
    )


def _large_manifests(world: World) -> Asked:
    """Return manifests of four megabytes."""
    layer = {"mediaType": "application/octet-stream", "size": 1, "digest": f"sha256:{'0' * 64}"}
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": layer}
    layers = [{**layer, "digest": f"sha256:{number:064x}"} for number in range(1000)]
    body = json.dumps({**document, "layers": layers, "annotations": _padding()}).encode()
    headers = {"Authorization": world.bearer(world.acme), "Content-Type": MANIFEST}
    return lambda number, _: Sent("PUT", f"/v2/acme/bench/manifests/m{number}", body, headers)


def _pulls_of_large_manifests(world: World) -> Asked:
    """Return manifests of four megabytes, which are hashed when they are pulled."""
    path = f"/v2/acme/bench/manifests/{_digest(world.push_large_manifest())}"
    headers = {"Authorization": world.bearer(world.acme), "Accept": MANIFEST}
    return lambda *_: Sent("GET", path, None, headers)


def _descriptions(world: World) -> Asked:
    """Return images whose configuration is as large as one that is read."""
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"N{number}=v" for number in range(60_000)]},
    }
    data = json.dumps(document).encode()
    config = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "size": len(data),
        "digest": world.push_blob(world.acme, data),
    }
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []}
    digest = _digest(world.push_manifest(manifest, "described"))
    path = f"/v1/repositories/{world.repository_id()}/images/{digest}?include=configuration"
    return lambda *_: Sent("GET", path, None, world.acme.headers)


def _attachments(world: World) -> Asked:
    """Return layers that a manifest of four megabytes names."""
    body = world.push_large_manifest()
    path = f"/v1/repositories/{world.repository_id()}/images/{_digest(body)}/attachment?layer=0"
    return lambda *_: Sent("GET", path, None, world.acme.headers)


def _previews(world: World) -> Asked:
    """Return previews of policies with all patterns that they may have, over many long tags."""
    body = world.push_large_manifest()
    for number in range(TAGS):
        world.push_manifest_bytes(body, f"{'a' * 120}-{number}")
    path = f"/v1/repositories/{world.repository_id()}/lifecycle-policy/preview"
    patterns = [f"{'*a' * 40}{number}*b" for number in range(10)]
    rules = [
        {
            "priority": number,
            "action": "expire",
            "selector": "tagged",
            "tag_patterns": [each],
            "older_than_days": number,
        }
        for number, each in enumerate(patterns, 1)
    ]
    return lambda *_: world.call("POST", path, {"rules": rules})


def _mails(world: World) -> Asked:
    """Return previews of an email template that does about as much as a rendering may."""
    loops = "{% for a in all %}{% for b in all %}x{% endfor %}{% endfor %}"
    template = {"name": "bench", "subject": "Hello", "text": loops}
    made = httpx.post(
        f"{world.url}/v1/templates", headers=world.acme.headers, json=template, timeout=60
    )
    found = made.raise_for_status().json()["template"]["id"]
    variables = {"variables": {"all": list(range(300))}}
    return lambda *_: world.call("POST", f"/v1/templates/{found}/preview", variables)


def _passwords(world: World) -> Asked:
    """Return attempts to change a password, each of which hashes a wrong one."""
    change = {"current_password": "not the one", "password": "a long enough password"}
    sent = world.call("PUT", "/v1/users/me/password", change)
    headers = {**sent.headers, "Authorization": f"Bearer {world.signed_in.person_token}"}
    return lambda *_: sent._replace(headers=headers)


def _deletions(world: World) -> Asked:
    """Return deletions by S3 of as many objects with as long keys as one names."""
    key = access_key_that_logs_in(world.signed_in)
    keys = "".join(f"<Object><Key>{number:04}{'k' * 1000}</Key></Object>" for number in range(1000))
    body = f"<Delete><Quiet>true</Quiet>{keys}</Delete>".encode()

    def asked(method: str, target: str, body: bytes) -> Sent:
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        request = signed(
            method,
            target,
            ("content-md5", md5),
            payload=hashlib.sha256(body).hexdigest(),
            date=date,
            scope=f"{date[:8]}/local/s3/aws4_request",
            key_id=key.id,
            secret=key.secret,
        )
        headers = {name.decode(): value.decode() for name, value in request.headers}
        return Sent(method, target, body, headers, world.s3_url)

    made = asked("PUT", "/pressed", b"")
    httpx.put(world.s3_url + made.path, headers=made.headers).raise_for_status()
    return lambda *_: asked("POST", "/pressed?delete=", body)


def _ranges(world: World) -> Asked:
    """Return ranges of a byte, as many and as far apart as open the most that an answer may."""
    blob = os.urandom(1 << 20) * FRAMES
    starts = [*range(0, len(blob), 2 << 20)] * 2
    headers = {
        "Authorization": world.bearer(world.acme),
        "Range": "bytes=" + ",".join(f"{start}-{start}" for start in starts),
    }
    path = f"/v2/acme/bench/blobs/{world.push_blob(world.acme, blob)}"
    return lambda *_: Sent("GET", path, None, headers)


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _padding() -> dict[str, str]:
    return {f"{number:06}": "x" * (MANIFEST_BYTES // 9000 - 14) for number in range(9000)}


def _upload(public: Any, key: str, chain: str = "") -> dict[str, str]:  # noqa: ANN401 - of any kind
    return {
        "name": "pressed",
        "certificate_pem": _certificate(public),
        "private_key_pem": key,
        "chain_pem": chain,
        "domains": ["another.test"],  # type: ignore[dict-item]
    }


def _certificate(public: Any, signer: rsa.RSAPrivateKey | None = None) -> str:  # noqa: ANN401
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("bench.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signer or _SIGNER, hashes.SHA256())
        .public_bytes(Encoding.PEM)
        .decode()
    )


def _pem(key: rsa.RSAPrivateKey | dsa.DSAPrivateKey) -> str:
    form = PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()


def _der(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x82]) + len(content).to_bytes(2) + content


def _integer(value: int) -> bytes:
    return _der(2, value.to_bytes(value.bit_length() // 8 + 1))


_SIGNER: Final = rsa.generate_private_key(65537, 2048)

SMALL: Final = "small requests"
LOADS: Final[Mapping[str, Callable[[World], Asked]]] = {
    SMALL: _small_requests,
    "hostile keys": _hostile_keys,
    "keys of other kinds": _keys_of_other_kinds,
    "uploads": _uploads,
    "slow keys": _slow_keys,
    "slow certificates": _slow_certificates,
    "sending identities": _identities,
    "large bodies": _large_bodies,
    "policies": _policies,
    "large manifests": _large_manifests,
    "pulled manifests": _pulls_of_large_manifests,
    "descriptions": _descriptions,
    "attachments": _attachments,
    "previews": _previews,
    "mails": _mails,
    "passwords": _passwords,
    "deletions": _deletions,
    "ranges": _ranges,
}
