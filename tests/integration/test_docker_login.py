"""``entrepot docker-login``: what it prints, what it writes, and whom it tells."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from registry.cli.commands.container_login import login_commands
from tests.entrepot import Home, mode_of
from tests.integration.cli_world import World, cli_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_docker_login_prints(world: World) -> None:
    shown = world.run("docker-login", "--print", "-o", "json").document
    assert shown.keys() == {"registry", "username", "password", "expires_at"}
    assert (shown["registry"], shown["username"]) == (world.host, "token")
    assert shown["expires_at"].endswith("Z")
    assert world.admits(shown["password"])
    table = world.run("docker-login", "--print")
    assert [line.split()[0] for line in table.lines] == ["FIELD", *shown]
    alone = world.run("docker-login", "--print-password")
    assert (alone.status, alone.err) == (0, "")
    assert world.admits(alone.text.removesuffix("\n"))


def test_docker_login_prints_a_pull_secret(world: World) -> None:
    command = ("docker-login", "--kubernetes-secret", "entrepot", "--namespace", "web")
    shown = world.run(*command)
    assert shown.text.startswith("# Its password expires at ")
    secret = yaml.safe_load(shown.out)
    as_json = world.run(*command, "-o", "json").document
    for manifest in (secret, as_json):
        (data,) = (manifest.pop("data"),)
        assert manifest == {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "entrepot", "namespace": "web"},
            "type": "kubernetes.io/dockerconfigjson",
        }
        assert data.keys() == {".dockerconfigjson"}
        config = json.loads(decoded(data[".dockerconfigjson"]))
        auth = config["auths"][world.host]
        assert decoded(auth["auth"]) == f"token:{auth['password']}"
        assert world.admits(auth["password"])


def decoded(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()


@pytest.mark.parametrize(
    "wrong",
    [
        ("--namespace", "web"),
        ("--kubernetes-secret", "Entrepot"),
        ("--kubernetes-secret", "a..b"),
        ("--kubernetes-secret", "a\nb: c"),
        ("--kubernetes-secret", "a", "--namespace", "a.b"),
        ("--print", "--print-password"),
        ("--client", "podman", "--print"),
    ],
)
def test_docker_login_refuses_what_cannot_be(world: World, wrong: tuple[str, ...]) -> None:
    ended = world.run("docker-login", *wrong)
    assert (ended.status, ended.text) == (2, "")


def test_docker_login_names_the_helper_and_keeps_the_rest(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    folder.mkdir()
    kept_elsewhere = folder / "dotfiles.json"
    before = {"auths": {"r": {"auth": "eA=="}}, "credHelpers": {"other": "x"}, "é": 1}
    kept_elsewhere.write_text(json.dumps(before))
    kept_elsewhere.chmod(0o640)
    (folder / "config.json").symlink_to(kept_elsewhere)
    machine = Home(world.home.folder, {"DOCKER_CONFIG": str(folder), "PATH": ""})
    ended = world.run("docker-login", "--credential-helper", home=machine)
    assert ended.status == 0
    assert f"asks docker-credential-entrepot for {world.host}." in ended.text
    assert "put it there, such as by: sudo ln -s " in ended.err
    after = json.loads(kept_elsewhere.read_text())
    assert after == {**before, "credHelpers": {"other": "x", world.host: "entrepot"}}
    assert list(after) == list(before)
    assert mode_of(kept_elsewhere) == 0o640
    assert sorted(each.name for each in folder.iterdir()) == ["config.json", "dotfiles.json"]
    again = world.run("docker-login", "--credential-helper", home=machine)
    assert (again.status, "asked before" in again.text) == (0, True)
    for damaged in ("[]", "{", '{"credHelpers": []}'):
        kept_elsewhere.write_text(damaged)
        ended = world.run("docker-login", "--credential-helper", home=machine)
        assert (ended.status, "mend the file first" in ended.err) == (1, True)
        assert kept_elsewhere.read_text() == damaged
    kept_elsewhere.unlink()
    (folder / "config.json").unlink()
    assert world.run("docker-login", "--credential-helper", home=machine).status == 0
    assert mode_of(folder / "config.json") == 0o600
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    for place, words in ((folder, "cannot read"), (Path("/proc/none"), "cannot write")):
        unusable = Home(world.home.folder, {"DOCKER_CONFIG": str(place), "PATH": ""})
        ended = world.run("docker-login", "--credential-helper", home=unusable)
        assert ended.status == 1
        assert f"{words} {place / 'config.json'}: " in ended.err


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("docker", "login --username token --password-stdin"),
        ("/opt/bin/nerdctl", "login --username token --password-stdin"),
        ("podman", "login --username token --password-stdin --tls-verify=false"),
        ("skopeo", "login --username token --password-stdin --tls-verify=false"),
        ("buildah", "login --username token --password-stdin --tls-verify=false"),
        ("oras", "login --username token --password-stdin --plain-http"),
        ("crane", "auth login --username token --password-stdin"),
        ("helm", "registry login --username token --password-stdin --plain-http"),
        ("regctl", "registry login --user token --pass-stdin"),
        ("unknown", "login --username token --password-stdin"),
    ],
)
def test_each_client_is_told_in_its_own_words(program: str, words: str) -> None:
    *_, told = login_commands("http://r:1", program, "token", "r:1")
    assert told == [program, *words.split(), "r:1"]
    (secure,) = login_commands("https://r", program, "token", "r")
    assert not {"--plain-http", "--tls-verify=false"} & set(secure)


def test_regctl_is_told_first_that_there_is_no_tls(world: World, tmp_path: Path) -> None:
    """Its login has no option for that, and fails without."""
    regctl = tmp_path / "regctl"
    regctl.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/told; cat >>{tmp_path}/given\n')
    regctl.chmod(0o755)
    assert world.run("docker-login", "--client", str(regctl)).status == 0
    assert (tmp_path / "told").read_text().splitlines() == [
        f"registry set --tls disabled {world.host}",
        f"registry login --user token --pass-stdin {world.host}",
    ]
    assert world.admits((tmp_path / "given").read_text())


def test_a_client_that_nobody_knows_and_is_not_there_gets_no_line(world: World) -> None:
    ended = world.run("docker-login", "--client", "bogus")
    assert ended.status == 1
    assert "cannot run bogus: " in ended.err
    assert "such as docker, nerdctl" in ended.err
    assert "--print-password" not in ended.err


def test_a_client_that_is_elsewhere_gets_a_line_to_run_there(world: World) -> None:
    ended = world.run("docker-login", "--client", "/no/crane")
    assert ended.status == 1
    assert (
        f"entrepot docker-login --registry {world.install.url} --print-password | "
        f"/no/crane auth login --username token --password-stdin {world.host}\n"
    ) in ended.err
