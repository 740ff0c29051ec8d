"""Forms whose policy boto3 signs: sent by a program over TLS, and by web pages in a browser."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.clients.chromium import browser
from tests.clients.s3_site import REGION, Boto, S3Site, noise, s3
from tests.databases import planted
from tests.entrepot import initialized, told
from tests.live import start_registry
from tests.postgresql import free_port

__all__ = ["browser", "s3"]

MIB = 1 << 20
SEND = """
const [url, fields, done] = arguments;
const form = new FormData();
for (const [name, value] of Object.entries(fields)) form.append(name, value);
form.append("file", new Blob(["from a script"], {type: "text/plain"}), "ä.txt");
fetch(url, {method: "POST", body: form})
    .then(async answer => done([answer.status, answer.headers.get("etag"), await answer.text()]))
    .catch(error => done([0, null, String(error)]));
"""


def create(boto: Boto, name: str) -> None:
    boto.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


def test_boto3_signs_a_form_that_is_stored_as_it_says(s3: S3Site) -> None:
    boto, body = s3.boto(), noise(20 * MIB)
    create(boto, "forms")
    said = {"acl": "private", "Content-Type": "image/png", "success_action_status": "201"}
    form = boto.generate_presigned_post(
        "forms",
        "uploads/${filename}",
        Fields=said,
        Conditions=[
            *({name: value} for name, value in said.items()),
            ["content-length-range", 1, 20 * MIB],
        ],
    )

    def send(content: bytes) -> httpx.Response:
        return httpx.post(
            form["url"],
            data=form["fields"],
            files={"file": ("a.png", content)},
            verify=ssl.create_default_context(cafile=str(s3.certificate)),
        )

    answer = send(body)
    assert answer.status_code == 201, answer.text
    got = boto.get_object(Bucket="forms", Key="uploads/a.png")
    assert got["Body"].read() == body
    assert (got["ContentType"], got["ETag"]) == ("image/png", answer.headers["etag"])
    assert "EntityTooLarge" in send(body + b"x").text


def test_everything_of_a_bucket_is_deleted_by_its_versions(s3: S3Site) -> None:
    """So do ``force_destroy`` of Terraform and ``clear!`` of SDKs."""
    boto = s3.boto()
    create(boto, "versions")
    for number in range(5):
        boto.put_object(Bucket="versions", Key=f"{number}/é", Body=b"x")
    boto.create_multipart_upload(Bucket="versions", Key="open")
    resource = boto3.resource(
        "s3",
        endpoint_url=s3.url,
        aws_access_key_id=s3.key_id,
        aws_secret_access_key=s3.secret,
        region_name=REGION,
        verify=str(s3.certificate),
    )
    bucket = resource.Bucket("versions")
    assert [each.id for each in bucket.object_versions.all()] == ["null"] * 5
    bucket.object_versions.delete()
    bucket.delete()
    assert "versions" not in [each.name for each in resource.buckets.all()]


@contextmanager
def page_of(folder: Path) -> Iterator[str]:
    """Serve a folder; yield its origin."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.client("chromium")
def test_a_browser_sends_forms_from_another_origin(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    shown = initialized(planted(tmp_path / "data"))
    port = free_port()
    registry = start_registry(tmp_path / "data", "--s3-port", str(port), command="serve")
    pages = tmp_path / "pages"
    pages.mkdir()
    file = tmp_path / "from a form.txt"
    file.write_text("from a form")
    try:
        with page_of(pages) as origin:
            boto = boto3.client(
                "s3",
                endpoint_url=f"http://127.0.0.1:{port}",
                aws_access_key_id=told("access key id", shown),
                aws_secret_access_key=told("secret access key", shown),
                region_name=REGION,
            )
            create(boto, "web")
            form = boto.generate_presigned_post("web", "up/${filename}")
            pages.joinpath("index.html").write_text("<!doctype html><title>Page</title>")
            browser.get(f"{origin}/index.html")
            status, _, error = browser.execute_async_script(SEND, form["url"], form["fields"])
            assert status == 0, error  # stored perhaps, but the page may not read the answer
            rule = {
                "AllowedOrigins": [origin],
                "AllowedMethods": ["POST"],
                "ExposeHeaders": ["ETag"],
            }
            boto.put_bucket_cors(Bucket="web", CORSConfiguration={"CORSRules": [rule]})
            status, etag, error = browser.execute_async_script(SEND, form["url"], form["fields"])
            assert status == 204, error
            stored = boto.get_object(Bucket="web", Key="up/ä.txt")
            assert (stored["Body"].read(), stored["ETag"]) == (b"from a script", etag)
            said = {"success_action_redirect": f"{origin}/done.html"}
            form = boto.generate_presigned_post("web", "up/${filename}", said, [said])
            fields = "".join(
                f'<input type="hidden" name="{name}" value="{value}">'
                for name, value in form["fields"].items()
            )
            pages.joinpath("form.html").write_text(
                f'<!doctype html><form action="{form["url"]}" method="post"'
                f' enctype="multipart/form-data">{fields}<input type="file" name="file">'
                "<button>Send</button></form>"
            )
            pages.joinpath("done.html").write_text("<!doctype html><h1>Done</h1>")
            browser.get(f"{origin}/form.html")
            browser.find_element(By.NAME, "file").send_keys(str(file))
            browser.find_element(By.TAG_NAME, "button").click()
            WebDriverWait(browser, 30).until(lambda page: "/done.html?" in page.current_url)
            assert "bucket=web&key=up%2Ffrom+a+form.txt&etag=" in browser.current_url
            assert boto.get_object(Bucket="web", Key="up/from a form.txt")["Body"].read() == (
                b"from a form"
            )
    finally:
        status = registry.stop()
    assert "unexpected failure" not in registry.log, registry.log
