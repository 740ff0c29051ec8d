"""L4: names and hostnames never reach the proxy configuration unescaped."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cloudcore.loadbalancer.configuration import (
    STATE_NAME,
    ProcessLimits,
    backend_name,
    haproxy_configuration,
    target_name,
)
from cloudcore.loadbalancer.driver import (
    HEALTH_PATH,
    BackendPlan,
    HealthPlan,
    ListenerPlan,
    ProxyPlan,
    TargetPlan,
)
from tests.certificates import self_signed
from tests.soak import times
from tests.tools import require_tool

HOSTILE = (
    "x\n    server evil 10.0.0.1:1\nfrontend evil\n  bind :1 '\"\\ #${HOME}%[env(HOME)]\x00\ud800"
)
names = st.one_of(st.just(HOSTILE), st.text(max_size=40))
ports = st.integers(1, 65535)
seconds = st.integers(1, 3600)
thresholds = st.integers(1, 100)
paths = st.none() | st.from_regex(HEALTH_PATH, fullmatch=True)
addresses = st.ip_addresses().map(str).filter(lambda address: "%" not in address)
socket_paths = st.text(st.characters(exclude_characters="\0"), max_size=200).map("/{}".format)
targets = st.one_of(
    st.builds(TargetPlan, names, addresses, ports, is_draining=st.booleans()),
    st.builds(
        TargetPlan, names, socket=socket_paths,
        is_draining=st.booleans(),
    ),
)  # fmt: skip
healths = st.builds(
    HealthPlan, st.sampled_from(("tcp", "http")), paths, seconds, seconds, thresholds, thresholds
)
backends = st.builds(
    BackendPlan,
    names,
    st.sampled_from(("tcp", "http")),
    healths,
    st.lists(targets, max_size=4, unique_by=lambda target: target.id).map(tuple),
)


@st.composite
def plans(draw: st.DrawFn) -> ProxyPlan:
    drawn = draw(st.lists(backends, max_size=3, unique_by=lambda backend: backend.name))
    listeners = []
    for port in draw(st.sets(ports, max_size=4)) if drawn else ():
        backend = draw(st.sampled_from(drawn))
        if backend.protocol == "tcp":
            listeners.append(ListenerPlan(port, "tcp", backend.name))
        elif draw(st.booleans()):
            listeners.append(ListenerPlan(port, "https", backend.name, "a.pem"))
        else:
            listeners.append(ListenerPlan(port, "http", backend.name))
    return ProxyPlan("a1", draw(addresses), tuple(listeners), tuple(drawn))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        chain, key = self_signed(Path(made), "a.example.com")
        Path(made, "cert-1.pem").write_bytes(chain.read_bytes() + key.read_bytes())
        Path(made, STATE_NAME).write_text("1\n")
        yield Path(made)


EVIL = BackendPlan(
    HOSTILE, "http", HealthPlan("http", "/'$HOME'%20;&"), (TargetPlan(HOSTILE, "10.0.0.1", 80),)
)


@given(plans())
@example(ProxyPlan("a1", "::1", (ListenerPlan(443, "https", HOSTILE, "a.pem"),), (EVIL,)))
@settings(max_examples=times(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_haproxy_takes_every_plan_and_reads_just_its_sections_and_servers(
    folder: Path, plan: ProxyPlan
) -> None:
    text, _ = haproxy_configuration(
        plan, {"a.pem": "cert-1.pem"}, ProcessLimits(500, 30, 10, is_unprivileged=False)
    )
    (folder / "haproxy.cfg").write_text(text)
    checked = subprocess.run(
        (require_tool("haproxy"), "-c", "-V", "-f", "haproxy.cfg"),
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # A file of certificates and no listener is no fault; a warning other than of the state is.
    assert checked.returncode == 0, checked.stderr + text
    assert "WARNING" not in checked.stderr, checked.stderr + text

    sections = dict(_sections(text))
    assert list(sections) == [
        "global",
        "defaults",
        *(f"frontend listener_{listener.port}" for listener in plan.listeners),
        *(f"backend {backend_name(backend.name)}" for backend in plan.backends),
    ]
    for listener in plan.listeners:
        read = sections[f"frontend listener_{listener.port}"]
        assert ["default_backend", backend_name(listener.backend)] in read
        (bind,) = (line for line in read if line[0] == "bind")
        assert bind[1].endswith(f"@{plan.vip}:{listener.port}")
        assert ("ssl" in bind) == (listener.protocol == "https")
    for backend in plan.backends:
        read = sections[f"backend {backend_name(backend.name)}"]
        servers = [(line[1], line[2].partition("@")[2]) for line in read if line[0] == "server"]
        assert servers == [
            (
                target_name(target),
                f"sockets/{target_name(target)}"
                if target.socket
                else f"{target.address}:{target.port}",
            )
            for target in backend.targets
        ]
        if backend.health.protocol == "http":
            (sent,) = (line for line in read if line[:2] == ["http-check", "send"])
            assert sent == [
                *["http-check", "send", "meth", "GET", "uri"],
                backend.health.path or "/",
                *["ver", "HTTP/1.1", "hdr", "Host", "localhost"],
            ]


def _sections(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Read a configuration as HAProxy does: words by blanks, quotes, a comment after `#`."""
    name, lines = "", list[list[str]]()
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] in ("global", "defaults", "frontend", "backend", "listen", "peers"):
            if name:
                yield name, lines
            name, lines = " ".join(words), []
        else:
            lines.append(words)
    yield name, lines
