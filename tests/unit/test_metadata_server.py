"""The metadata service of an instance: who is answered, with what, and within which bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.compute import metadata_server
from cloudcore.compute.metadata_server import (
    MAX_HEAD_BYTES,
    MAX_REQUESTS,
    REQUEST_SECONDS,
    MetadataConversation,
    MetadataService,
)

ROLE: Final = {
    "access_token": "ey.J0.token",
    "access_key_id": "ASAAAA",
    "secret_access_key": "hidden",
    "session_token": "est_1",
    "expires_at": "2026-01-01T01:00:00Z",
    "account_id": "0192f0c1-0000-7000-8000-000000000001",
    "account_handle": "acme",
    "role_id": "0192f0c1-0000-7000-8000-000000000002",
}
INSTANCE: Final = {"id": "0192f0c1-0000-7000-8000-000000000003", "region": "local", "node": "one"}
BEFORE: Final = 1_767_225_600.0  # an hour before the credentials end
HOST: Final = "Host: 169.254.169.254"


class Clocks:
    """Time as the test says."""

    now = BEFORE
    monotonic = 1000.0


class Instance:
    """An instance's folder, and a service that tells of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clocks = Clocks()
        self.service = MetadataService(
            folder, now=lambda: self.clocks.now, monotonic=lambda: self.clocks.monotonic
        )
        self.put("instance.json", INSTANCE)

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401 - JSON
        made = self.folder / f"{name}.new"
        made.write_text(json.dumps(value))
        made.rename(self.folder / name)

    def ask(self, line: str, *fields: str) -> tuple[int, dict[str, str], str]:
        return parsed(MetadataConversation(self.service).receive(head(line, HOST, *fields)))

    def token(self, seconds: int = 60) -> str:
        field = f"X-Entrepot-Metadata-Token-TTL-Seconds: {seconds}"
        status, _, token = self.ask("PUT /latest/api/token", field)
        assert status == 200
        return token

    def get(self, path: str, *fields: str) -> tuple[int, dict[str, str], str]:
        return self.ask(f"GET {path}", f"X-Entrepot-Metadata-Token: {self.token()}", *fields)


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", *fields, "", ""]).encode()


def parsed(answer: bytes) -> tuple[int, dict[str, str], str]:
    top, _, body = answer.decode().partition("\r\n\r\n")
    line, *lines = top.split("\r\n")
    fields = dict(each.split(": ", 1) for each in lines)
    assert fields["Content-Length"] == str(len(body.encode()))
    return int(line.split()[1]), fields, body


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


def test_a_program_gets_a_token_then_its_instance_and_the_credentials_of_its_role(
    instance: Instance,
) -> None:
    instance.put("credentials.json", ROLE)

    status, fields, body = instance.get("/latest/entrepot/instance")
    assert (status, json.loads(body)) == (200, INSTANCE)
    assert fields["Content-Type"] == "application/json"
    assert fields["Cache-Control"] == "no-store"

    status, fields, body = instance.get("/latest/entrepot/iam/access-token")
    assert (status, body) == (200, "ey.J0.token")
    assert fields["X-Entrepot-Expires-At"] == ROLE["expires_at"]

    status, _, body = instance.get("/latest/entrepot/iam/credentials")
    shown = {name: value for name, value in ROLE.items() if name != "access_token"}
    assert (status, json.loads(body)) == (200, shown)


def test_credentials_that_were_renewed_by_a_rename_are_told_at_the_next_request(
    instance: Instance,
) -> None:
    instance.put("credentials.json", ROLE)
    assert instance.get("/latest/entrepot/iam/access-token")[2] == "ey.J0.token"
    instance.put("credentials.json", {**ROLE, "access_token": "newer"})
    assert instance.get("/latest/entrepot/iam/access-token")[2] == "newer"


@pytest.mark.parametrize(
    "token", ["", "guessed", "\xff", "AAAA", "A" * 66, "=", "QUFB" * 20, "a b"]
)
def test_without_a_token_of_this_service_nothing_is_told(instance: Instance, token: str) -> None:
    instance.put("credentials.json", ROLE)
    for path in ("iam/access-token", "iam/credentials", "instance", "nothing"):
        for field in ([f"X-Entrepot-Metadata-Token: {token}"], []):
            status, fields, body = instance.ask(f"GET /latest/entrepot/{path}", *field)
            assert status == 401
            assert fields["WWW-Authenticate"] == "X-Entrepot-Metadata-Token"
            assert "PUT /latest/api/token" in body


def test_a_token_of_another_instance_is_no_token_here(instance: Instance, tmp_path: Path) -> None:
    other = MetadataService(tmp_path, monotonic=lambda: 1000.0)
    field = f"X-Entrepot-Metadata-Token: {instance.token()}"
    asked = head("GET /latest/entrepot/instance", HOST, field)
    assert parsed(MetadataConversation(instance.service).receive(asked))[0] == 200
    assert parsed(MetadataConversation(other).receive(asked))[0] == 401


def test_a_changed_token_is_no_token(instance: Instance) -> None:
    token = instance.token(1)
    later = ("B" if token[9] == "A" else "A").join((token[:9], token[10:]))  # of its end
    assert later != token
    status, _, _ = instance.ask(
        "GET /latest/entrepot/instance", f"X-Entrepot-Metadata-Token: {later}"
    )
    assert status == 401


def test_a_token_ends_after_the_seconds_that_were_asked_for(instance: Instance) -> None:
    field = f"X-Entrepot-Metadata-Token: {instance.token(30)}"
    instance.clocks.monotonic += 29.9
    assert instance.ask("GET /latest/entrepot/instance", field)[0] == 200
    instance.clocks.monotonic += 0.1
    assert instance.ask("GET /latest/entrepot/instance", field)[0] == 401


@pytest.mark.parametrize("seconds", ["", "0", "21601", "-1", "1.5", "ten", "999999", "٣"])
def test_a_token_is_for_one_second_to_six_hours(instance: Instance, seconds: str) -> None:
    field = f"X-Entrepot-Metadata-Token-TTL-Seconds: {seconds}"
    assert instance.ask("PUT /latest/api/token", field)[0] == 400
    assert instance.ask("PUT /latest/api/token")[0] == 400
    for good in (1, 21600):
        assert instance.token(good)


@pytest.mark.parametrize(
    "field",
    ["X-Forwarded-For: 10.0.0.1", "x-forwarded-for:", "Forwarded: for=1.2.3.4", "Via: 1.1 proxy"],
)
def test_a_request_that_a_proxy_forwarded_is_refused(instance: Instance, field: str) -> None:
    ttl = "X-Entrepot-Metadata-Token-TTL-Seconds: 60"
    assert instance.ask("PUT /latest/api/token", ttl, field)[0] == 403
    assert instance.get("/latest/entrepot/instance", field)[0] == 403


@pytest.mark.parametrize(
    "host", ["attacker.example", "169.254.169.254.attacker.example", "localhost", "", "[::1]"]
)
def test_a_name_that_points_here_is_refused(instance: Instance, host: str) -> None:
    ttl = "X-Entrepot-Metadata-Token-TTL-Seconds: 60"
    asked = head("PUT /latest/api/token", f"Host: {host}", ttl)
    assert parsed(MetadataConversation(instance.service).receive(asked))[0] == 403
    asked = head("PUT /latest/api/token", "Host: 169.254.169.254:80", ttl)
    assert parsed(MetadataConversation(instance.service).receive(asked))[0] == 200


def test_an_instance_without_a_role_is_told_so(instance: Instance) -> None:
    for path in ("/latest/entrepot/iam/access-token", "/latest/entrepot/iam/credentials"):
        status, _, body = instance.get(path)
        assert status == 404
        assert "has no role" in body


@pytest.mark.parametrize(
    "path", ["/", "/latest", "/latest/entrepot/instance/", "/latest/entrepot/iam/credentials?a=b"]
)
def test_an_unknown_path_names_those_there_are(instance: Instance, path: str) -> None:
    status, _, body = instance.get(path)
    assert status == 404
    assert "/latest/entrepot/iam/access-token" in body


def test_each_path_has_one_method(instance: Instance) -> None:
    status, fields, _ = instance.ask("GET /latest/api/token")
    assert (status, fields["Allow"]) == (405, "PUT")
    token = f"X-Entrepot-Metadata-Token: {instance.token()}"
    for method in ("PUT", "POST", "HEAD", "DELETE", "OPTIONS"):
        status, fields, _ = instance.ask(f"{method} /latest/entrepot/instance", token)
        assert (status, fields["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "stored",
    [
        [],
        {},
        {**ROLE, "expires_at": "soon"},
        {**ROLE, "expires_at": 7},
        {**ROLE, "access_token": "a\r\nSet-Cookie: b"},
        {**ROLE, "expires_at": "2026-01-01T00:00:00Z"},
    ],
)
def test_credentials_that_are_over_or_half_written_are_not_told(
    instance: Instance, stored: object
) -> None:
    instance.put("credentials.json", stored)
    for path in ("/latest/entrepot/iam/access-token", "/latest/entrepot/iam/credentials"):
        status, fields, body = instance.get(path)
        assert status == 503
        assert fields["Retry-After"]
        assert "ey.J0" not in body


def test_a_file_that_cannot_be_read_is_an_answer_too(instance: Instance) -> None:
    (instance.folder / "instance.json").unlink()
    assert instance.get("/latest/entrepot/instance")[0] == 503
    (instance.folder / "instance.json").write_bytes(b"\xff{")
    assert instance.get("/latest/entrepot/instance")[0] == 503
    (instance.folder / "credentials.json").mkdir()
    assert instance.get("/latest/entrepot/iam/credentials")[0] == 503


@pytest.mark.parametrize(
    "asked",
    [
        b"GET /x HTTP/1.1\nHost: 169.254.169.254\r\n\r\n",
        b"GET  /x HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
        b"get /x HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
        b"GET http://169.254.169.254/x HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: 169.254.169.254\r\n folded\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost : 169.254.169.254\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: 169.254.169.254\r\nHost: 169.254.169.254\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: 169.254.169.254\r\na: b\x00\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: 169.254.169.254\r\na: b\rc\r\n\r\n",
        b"GET /x HTTP/1.1\r\n\r\n",
        b"\r\nGET /x HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_once_and_the_connection_ends(
    instance: Instance, asked: bytes
) -> None:
    connection = MetadataConversation(instance.service)
    status, fields, _ = parsed(connection.receive(asked))
    assert (status, fields["Connection"]) == (400, "close")
    assert connection.is_over
    assert connection.receive(head("GET /latest/entrepot/instance", HOST)) == b""


@pytest.mark.parametrize("field", ["Content-Length: 1", "Transfer-Encoding: chunked"])
def test_a_request_with_a_body_ends_the_connection(instance: Instance, field: str) -> None:
    connection = MetadataConversation(instance.service)
    asked = head("PUT /latest/api/token", HOST, field) + head("GET /hidden", HOST)
    status, _, _ = parsed(connection.receive(asked))
    assert status == 413
    assert connection.is_over


def test_an_empty_body_is_none(instance: Instance) -> None:
    ttl = "X-Entrepot-Metadata-Token-TTL-Seconds: 60"
    assert instance.ask("PUT /latest/api/token", ttl, "Content-Length: 0")[0] == 200


def test_an_old_version_of_http_is_refused(instance: Instance) -> None:
    connection = MetadataConversation(instance.service)
    assert parsed(connection.receive(b"GET / HTTP/1.0\r\n\r\n"))[0] == 505
    assert connection.is_over


def test_a_head_without_an_end_is_bounded(instance: Instance) -> None:
    connection = MetadataConversation(instance.service)
    assert connection.receive(b"G" * MAX_HEAD_BYTES) == b""
    assert parsed(connection.receive(b"G"))[0] == 431
    assert connection.is_over


def test_a_connection_serves_many_requests_but_not_forever(instance: Instance) -> None:
    asked = head("GET /latest/entrepot/instance", HOST, f"X-Entrepot-Metadata-Token: {'A' * 8}")
    connection = MetadataConversation(instance.service)
    answers = connection.receive(asked * (MAX_REQUESTS + 5))
    assert answers.count(b"HTTP/1.1 401 ") == MAX_REQUESTS
    assert answers.count(b"Connection: close") == 1
    assert connection.is_over


def test_a_client_may_end_the_connection(instance: Instance) -> None:
    connection = MetadataConversation(instance.service)
    connection.receive(head("GET /", HOST, "Connection: keep-alive, Close"))
    assert connection.is_over


def test_a_request_must_come_whole_in_time_however_slowly_its_bytes_come(
    instance: Instance,
) -> None:
    connection = MetadataConversation(instance.service)
    assert connection.deadline == 1000 + REQUEST_SECONDS
    instance.clocks.monotonic += 9
    connection.receive(b"GET / HT")
    assert connection.deadline == 1000 + REQUEST_SECONDS
    connection.receive(b"TP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
    assert connection.deadline == 1009 + REQUEST_SECONDS


@given(st.lists(st.integers(1, 400), max_size=6), st.data())
def test_the_answers_do_not_depend_on_how_the_bytes_come(
    cuts: list[int], data: st.DataObject
) -> None:
    ttl = "X-Entrepot-Metadata-Token-TTL-Seconds: none"
    line = data.draw(st.sampled_from(["PUT /latest/api/token", "GET /latest/entrepot/instance"]))
    stream = head(line, HOST, ttl) * 2 + head("GET /", HOST, "Content-Length: 9")
    service = MetadataService(Path("/nonexistent"), monotonic=lambda: 0.0)
    whole = MetadataConversation(service).receive(stream)
    connection, answers, left = MetadataConversation(service), b"", stream
    for cut in cuts:
        answers += connection.receive(left[:cut])
        left = left[cut:]
    answers += connection.receive(left)
    assert without_dates(answers) == without_dates(whole)


def without_dates(answers: bytes) -> list[bytes]:
    return [line for line in answers.split(b"\r\n") if not line.startswith(b"Date: ")]


@given(st.binary(max_size=300))
def test_no_bytes_break_it(noise: bytes) -> None:
    connection = MetadataConversation(MetadataService(Path("/nonexistent")))
    answer = connection.receive(noise + b"\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))


def test_it_imports_the_standard_library_alone() -> None:
    script = (
        "import sys, runpy; before = set(sys.modules); runpy.run_path(sys.argv[1]);"
        " print(*(name for name in set(sys.modules) - before"
        " if name.split('.')[0] not in sys.stdlib_module_names))"
    )
    path = metadata_server.__file__
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, path],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert ran.stdout.split() == []
