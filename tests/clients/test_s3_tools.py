"""s3cmd, rclone, AWS's own command and curl, as their users configure them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.programs import attempt, run
from tests.clients.s3_site import HOST, REGION, S3Site, noise, s3

__all__ = ["s3"]

MIB = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder of files to store: small, empty, large, and with odd names."""
    folder = tmp_path / "files"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "small.txt").write_text("hello")
    (folder / "empty").write_bytes(b"")
    (folder / "deep" / "large.bin").write_bytes(noise(17 * MIB + 3))
    (folder / "deep" / "er" / "ä b+c%25.txt").write_text("odd")
    return folder


def same(one: Path, other: Path) -> None:
    """Compare two folders."""
    read = [
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (one, other)
    ]
    assert read[0] == read[1]


def test_s3cmd_puts_gets_syncs_and_deletes(s3: S3Site, files: Path, tmp_path: Path) -> None:
    host = s3.url.removeprefix("https://")
    config = tmp_path / "s3cfg"
    config.write_text(
        f"[default]\naccess_key = {s3.key_id}\nsecret_key = {s3.secret}\nhost_base = {host}\n"
        f"host_bucket = {host}\nbucket_location = local\nuse_https = True\n"
        f"ca_certs_file = {s3.certificate}\nmultipart_chunk_size_mb = 5\n"
    )

    def s3cmd(*words: str | Path) -> str:
        return run("s3cmd", "--config", config, "--no-progress", *words)

    s3cmd("mb", "s3://cmd")
    assert "s3://cmd" in s3cmd("ls")
    s3cmd("put", files / "small.txt", "s3://cmd/small.txt", "--add-header=x-amz-meta-a:b")
    assert "MD5 sum:   5d41402abc4b2a76b9719d911017c592" in s3cmd("info", "s3://cmd/small.txt")
    s3cmd("sync", f"{files}/", "s3://cmd/all/")
    out = tmp_path / "out"
    out.mkdir()
    s3cmd("sync", "s3://cmd/all/", f"{out}/")
    same(files, out)
    assert "large.bin" not in s3cmd("sync", f"{files}/", "s3://cmd/all/")  # nothing has changed
    s3cmd("cp", "s3://cmd/all/deep/large.bin", "s3://cmd/copy.bin")
    s3cmd("get", "s3://cmd/copy.bin", out / "copy.bin")
    assert (out / "copy.bin").read_bytes() == (files / "deep" / "large.bin").read_bytes()
    refused = attempt("s3cmd", "--config", config, "setacl", "--acl-public", "s3://cmd/small.txt")
    assert "AccessControlListNotSupported" in refused.stderr
    s3cmd("del", "--recursive", "--force", "s3://cmd")
    s3cmd("rb", "s3://cmd")


def test_rclone_copies_checks_and_syncs(s3: S3Site, files: Path, tmp_path: Path) -> None:
    environment = {
        "RCLONE_CONFIG": str(tmp_path / "none.conf"),
        "RCLONE_CONFIG_REMOTE_TYPE": "s3",
        "RCLONE_CONFIG_REMOTE_PROVIDER": "Other",
        "RCLONE_CONFIG_REMOTE_ACCESS_KEY_ID": s3.key_id,
        "RCLONE_CONFIG_REMOTE_SECRET_ACCESS_KEY": s3.secret,
        "RCLONE_CONFIG_REMOTE_ENDPOINT": s3.url,
        "RCLONE_CONFIG_REMOTE_REGION": "local",
        "RCLONE_CONFIG_REMOTE_CHUNK_SIZE": "5M",
        "RCLONE_CONFIG_REMOTE_UPLOAD_CUTOFF": "8M",
        "AWS_CA_BUNDLE": "",
        "RCLONE_CA_CERT": str(s3.certificate),
        "RCLONE_RETRIES": "1",
    }

    def rclone(*words: str | Path) -> str:
        return run("rclone", *words, env=environment)

    rclone("mkdir", "remote:clone")
    rclone("copy", files, "remote:clone/all")
    rclone("check", files, "remote:clone/all")
    rclone("check", "--download", files, "remote:clone/all")
    listed = json.loads(rclone("lsjson", "--recursive", "--metadata", "remote:clone/all"))
    assert {each["Path"] for each in listed if not each["IsDir"]} == {
        str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()
    }
    (files / "small.txt").unlink()
    rclone("sync", files, "remote:clone/all")
    rclone("sync", "remote:clone/all", "remote:clone/again")  # copied by the server
    out = tmp_path / "out"
    rclone("copy", "remote:clone/again", out)
    same(files, out)
    assert rclone("cat", "remote:clone/again/deep/er/ä b+c%25.txt") == "odd"
    rclone("purge", "remote:clone")


@pytest.mark.timeout(300)  # nine starts of a slow program
def test_aws_copies_syncs_and_presigns(s3: S3Site, files: Path, tmp_path: Path) -> None:
    """It asks for 100 Continue, of empty files too, and waits for it in the next request."""
    for number in range(10):
        (files / f"empty-{number}").write_bytes(b"")
        (files / f"tiny-{number}").write_bytes(b"x")
    # `sync` sends again what was changed in the second of its upload: S3's times are whole seconds.
    for path in files.rglob("*"):
        os.utime(path, (1e9, 1e9))

    def aws(*words: str | Path, env: Mapping[str, str] | None = None) -> str:
        environment = {**s3.environment, **(env or {})}
        return run("/usr/bin/aws", "--endpoint-url", s3.url, *words, env=environment)

    def copy(*words: str | Path) -> None:
        """Copy all files at the first attempt: a further one would hide a connection that hung."""
        options = ("--recursive", "--cli-read-timeout", "30")
        aws("s3", "cp", *options, *words, env={"AWS_MAX_ATTEMPTS": "1"})

    aws("s3", "mb", "s3://cli")
    copy(files, "s3://cli/all")
    out, synced = tmp_path / "out", tmp_path / "synced"
    copy("s3://cli/all", out)
    same(files, out)
    aws("s3", "sync", "s3://cli/all", synced)
    same(files, synced)
    assert aws("s3", "sync", files, "s3://cli/all") == ""
    head = json.loads(aws("s3api", "head-object", "--bucket", "cli", "--key", "all/small.txt"))
    assert head["ContentLength"] == 5
    url = aws("s3", "presign", "s3://cli/all/small.txt").strip()
    assert run("curl", "--fail", "--silent", "--cacert", s3.certificate, url) == "hello"
    aws("s3", "mv", "s3://cli/all/small.txt", "s3://cli/moved.txt")
    aws("s3", "rb", "--force", "s3://cli")


def test_curl_signs_for_the_host_of_a_bucket(s3: S3Site, tmp_path: Path) -> None:
    s3.boto().create_bucket(Bucket="curled")
    port = s3.registry.port
    url = f"https://curled.{HOST}:{port}/greeting.txt"  # curl looks at this machine for .localhost
    file = tmp_path / "greeting.txt"
    file.write_text("hello")
    signs = ("--aws-sigv4", f"aws:amz:{REGION}:s3", "--user", f"{s3.key_id}:{s3.secret}")
    common = ("--silent", "--show-error", "--fail", "--cacert", s3.certificate, *signs)
    unsigned = ("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD")
    run("curl", *common, *unsigned, "--upload-file", file, url)
    assert run("curl", *common, *unsigned, url) == "hello"
