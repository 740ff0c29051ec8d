"""Write a plan as the configuration of HAProxy or of the embedded proxy.

No text of an account is in a configuration unchanged: names of backends and ids of targets become
digests, addresses and ports were parsed, and certificate files are named by digests of their
content. The only text is the path of a health check, which the plan has checked, and which is
quoted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from cloudcore.loadbalancer.driver import BackendPlan, HealthPlan, ProxyPlan, TargetPlan
from cloudcore.loadbalancer.proxy.heads import HEAD_BYTES, HEAD_FIELDS
from cloudcore.loadbalancer.proxy.relay import IDLE_SECONDS, KEEP_ALIVE_SECONDS, STREAM_SECONDS
from cloudcore.loadbalancer.proxy.targets import CONNECT_SECONDS

SOCKET_NAME: Final = "control"
"""The name of the socket that reports health and metrics, in the folder of the replica."""
STATE_NAME: Final = "state"
"""The name of the file from which HAProxy reads the health of targets when it is reloaded."""
SOCKETS_NAME: Final = "sockets"
"""The name of the folder of links to the sockets of targets, whose own paths may be too long."""
CHROOT_NAME: Final = "empty"
UNPRIVILEGED_ID: Final = 65534
"""`nobody` and `nogroup`."""

OLD_WORKER_SECONDS: Final = 3600
"""How long connections of an old worker may last after HAProxy is reloaded."""

_CIPHERS: Final = ":".join(
    f"ECDHE-{key}-{cipher}"
    for cipher in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
    for key in ("ECDSA", "RSA")
)
"""The ciphers of TLS 1.2; those of TLS 1.3 are all good."""


class ProcessLimits(NamedTuple):
    """The limits and privileges of a replica's process."""

    connections: int
    drain_seconds: int
    head_seconds: int
    """The time within which a client must send the head of a request."""
    is_unprivileged: bool
    """After it has opened its ports, it gives up root and access to other files."""


def target_name(target: TargetPlan) -> str:
    """Return a target's name in a proxy; another address, port or socket gives another name."""
    place = (target.id, target.address or "", str(target.port), target.socket or "")
    return f"target_{_digest(chr(0).join(place))}"


def backend_name(name: str) -> str:
    """Return the name of a backend in the configuration of a proxy."""
    return f"backend_{_digest(name)}"


def configuration_digest(text: str) -> str:
    """Return the digest that identifies a configuration; a proxy reports the digest of its own."""
    return hashlib.sha256(text.encode()).hexdigest()


def proxy_document(
    plan: ProxyPlan, certificates: Mapping[str, bytes], limits: ProcessLimits
) -> str:
    """Return the embedded proxy's configuration as one line, which includes the certificates."""
    return json.dumps(
        {
            "vip": plan.vip,
            **limits._asdict(),
            "certificates": {file: pem.decode("ascii") for file, pem in certificates.items()},
            "listeners": [
                {
                    "port": one.port,
                    "protocol": one.protocol,
                    "certificate": one.certificate_file,
                    "backend": backend_name(one.backend),
                }
                for one in plan.listeners
            ],
            "backends": [
                {
                    "name": backend_name(backend.name),
                    "health": dataclasses.asdict(backend.health),
                    "targets": [
                        {
                            "name": target_name(target),
                            "place": f"../{SOCKETS_NAME}/{target_name(target)}"
                            if target.socket
                            else [target.address, target.port],
                            "is_draining": target.is_draining,
                        }
                        for target in backend.targets
                    ],
                }
                for backend in plan.backends
            ],
        }
    )


def haproxy_configuration(
    plan: ProxyPlan, certificates: Mapping[str, str], limits: ProcessLimits
) -> tuple[str, str]:
    """Return (configuration, digest) for HAProxy (2.6), which runs in the folder of the replica.

    The line `description`, which `show info` reports, is the digest of the other lines.
    `certificates` maps the plan's certificate files to file names in that folder.
    """
    lines = [*_defaults(limits), *_frontends(plan, certificates), *_backends(plan)]
    head = list(_global(limits))
    digest = configuration_digest("\n".join([*head, *lines]))
    return "\n".join([head[0], f"    description {digest}", *head[1:], *lines]) + "\n", digest


def _global(limits: ProcessLimits) -> Iterator[str]:
    yield "global"
    yield f"    maxconn {limits.connections}"
    yield "    nbthread 1"  # several replicas run in parallel instead
    yield f"    hard-stop-after {OLD_WORKER_SECONDS}s"
    yield f"    stats socket unix@{SOCKET_NAME} mode 600 level admin expose-fd listeners"
    yield f"    server-state-file ./{STATE_NAME}"
    yield "    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets"
    yield f"    ssl-default-bind-ciphers {_CIPHERS}"
    # HAProxy makes no HTTPS requests; otherwise it would read all CAs at each start and reload.
    yield "    httpclient.ssl.verify none"
    yield f"    tune.bufsize {HEAD_BYTES + 1024}"
    yield "    tune.maxrewrite 1024"
    yield f"    tune.http.maxhdr {HEAD_FIELDS + 1}"
    if limits.is_unprivileged:
        yield f"    chroot {CHROOT_NAME}"
        yield f"    uid {UNPRIVILEGED_ID}"
        yield f"    gid {UNPRIVILEGED_ID}"


def _defaults(limits: ProcessLimits) -> Iterator[str]:
    yield "defaults"
    yield "    balance roundrobin"
    yield f"    timeout connect {CONNECT_SECONDS}s"
    yield f"    timeout client {IDLE_SECONDS}s"
    yield f"    timeout server {IDLE_SECONDS}s"
    yield "    timeout client-fin 30s"
    yield f"    timeout tunnel {STREAM_SECONDS}s"
    yield f"    timeout http-request {limits.head_seconds}s"
    yield f"    timeout http-keep-alive {KEEP_ALIVE_SECONDS}s"
    yield "    timeout queue 5s"
    yield "    retries 3"
    yield "    option redispatch 1"  # a connection that cannot be made is tried on another target
    yield "    load-server-state-from-file global"


def _frontends(plan: ProxyPlan, certificates: Mapping[str, str]) -> Iterator[str]:
    for listener in plan.listeners:
        place = f"{_place(plan.vip)}:{listener.port}"
        yield f"frontend listener_{listener.port}"
        if listener.protocol == "tcp":
            yield "    mode tcp"
            yield f"    timeout client {STREAM_SECONDS}s"
            yield f"    bind {place}"
        else:
            yield "    mode http"
            tls = ""
            if listener.certificate_file is not None:
                tls = f" ssl crt {certificates[listener.certificate_file]} alpn h2,http/1.1"
            yield f"    bind {place}{tls}"
            yield from _request_rules(listener.protocol)
        yield f"    default_backend {backend_name(listener.backend)}"


def _request_rules(protocol: str) -> Iterator[str]:
    # Where a request has both lengths, HAProxy drops Content-Length and closes after it.
    for status, condition in (
        (400, "HTTP_1.0 { req.hdr(transfer-encoding) -m found }"),
        (400, "HTTP_1.1 !{ req.hdr(host) -m found }"),
        (405, "METH_CONNECT"),
    ):
        yield f"    http-request deny deny_status {status} if {condition}"
    # A request that may have changed something is not repeated; a failed connection is.
    yield "    http-request disable-l7-retry unless { method GET HEAD OPTIONS }"
    # After a change to another protocol, these rules would not be applied.
    yield "    http-request del-header upgrade unless { req.hdr(upgrade) -i websocket }"
    yield "    http-request del-header ^(keep-alive|proxy-connection|http2-settings)$ -m reg"
    # A target that reads `_` as `-` would take such fields of a client for ours.
    yield "    http-request del-header ^x[-_]forwarded_|^x_forwarded -m reg"
    yield "    option forwardfor"
    yield f"    http-request set-header X-Forwarded-Proto {protocol}"
    # While this process stops, the next request on an idle connection is still answered.
    yield "    option idle-close-on-response"


def _backends(plan: ProxyPlan) -> Iterator[str]:
    for backend in plan.backends:
        yield f"backend {backend_name(backend.name)}"
        yield f"    mode {backend.protocol}"
        if backend.protocol == "tcp":
            yield f"    timeout server {STREAM_SECONDS}s"
        else:
            yield "    retry-on conn-failure empty-response"
        yield from _health(backend.health)
        for target in backend.targets:
            yield f"    server {target_name(target)} {_dialled(target)} {_check(backend, target)}"


def _health(health: HealthPlan) -> Iterator[str]:
    yield f"    timeout check {health.timeout_seconds}s"
    if health.protocol == "http":
        path = (health.path or "/").replace("'", "'\\''")
        yield "    option httpchk"
        yield f"    http-check send meth GET uri '{path}' ver HTTP/1.1 hdr Host localhost"
        yield "    http-check expect status 200-399"


def _check(backend: BackendPlan, target: TargetPlan) -> str:
    health = backend.health
    weight = " weight 0" if target.is_draining else ""
    return (
        f"check inter {health.interval_seconds}s rise {health.healthy_threshold}"
        f" fall {health.unhealthy_threshold}{weight}"
    )


def _dialled(target: TargetPlan) -> str:
    if target.socket is not None:
        return f"unix@{SOCKETS_NAME}/{target_name(target)}"
    assert target.address is not None
    return f"{_place(target.address)}:{target.port}"


def _place(address: str) -> str:
    return f"ipv{ip_address(address).version}@{address}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
