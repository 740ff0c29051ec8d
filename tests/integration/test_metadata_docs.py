"""What docs/how-to/metadata.md lets a program do, in a namespace with the service itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.tools import missing, require_tool

ROOT = Path(__file__).parent.parent.parent
TOKEN = "ey.of.role"
SERVE = """
import socket, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from cloudcore.nodes.relays import Loop
from cloudcore.compute.shim.program import serve_metadata
from cloudcore.compute.metadata_server import ADDRESS, PORT, MetadataService

folder, script, token = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "address", "add", ADDRESS + "/32", "dev", "lo"], check=True)
listener = socket.create_server((ADDRESS, PORT))
listener.setblocking(False)
loop = Loop()
serve_metadata(loop, listener, MetadataService(folder))

class Queues(BaseHTTPRequestHandler):
    def do_GET(self):
        is_known = self.headers["Authorization"] == "Bearer " + token
        self.send_response(200 if is_known and self.path == "/v1/queues" else 401)
        self.end_headers()
        self.wfile.write(b"queues of the account")
    def log_message(self, *_):
        pass

def turn():
    while True:
        loop.turn()

threading.Thread(target=turn, daemon=True).start()
threading.Thread(target=HTTPServer(("127.0.0.1", 8080), Queues).serve_forever, daemon=True).start()
sys.exit(subprocess.run(["bash", "-euo", "pipefail", "-c", script]).returncode)
"""


def test_the_example_gets_the_credentials_of_the_instance_by_real_clients(tmp_path: Path) -> None:
    for program in ("unshare", "ip", "curl", "jq", "bash"):
        require_tool(program)
    isolated = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*isolated, "true"], check=False, capture_output=True).returncode:
        missing("namespaces")
    (script,) = re.findall(
        r"```bash\n(.*?)```", (ROOT / "docs/how-to/metadata.md").read_text(), flags=re.DOTALL
    )
    (tmp_path / "instance.json").write_text(json.dumps({"url": "http://127.0.0.1:8080"}))
    role = dict.fromkeys(
        (
            *("access_key_id", "secret_access_key", "session_token"),
            *("account_id", "account_handle", "role_id"),
        ),
        "x",
    )
    held = {**role, "access_token": TOKEN, "expires_at": "2999-01-01T00:00:00Z"}
    (tmp_path / "credentials.json").write_text(json.dumps(held))

    ran = subprocess.run(
        [*isolated, sys.executable, "-c", SERVE, str(tmp_path), script, TOKEN],
        check=False,
        capture_output=True,
        text=True,
    )

    assert (ran.stdout, ran.returncode) == ("queues of the account", 0), ran.stderr
