"""What the page of an asset in Dagster's UI asks of a webserver."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

SERVER_SECONDS = 120
PAGE = """query { assetNodeOrError(assetKey: {path: ["bronze", "visits"]}) { ... on AssetNode {
  assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } }
  partitionStats { numMaterialized numPartitions numFailed }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } }
  assetMaterializations(limit: 100) { partition timestamp metadataEntries { label } } } } }"""


@contextmanager
def webserver(module: str, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Serve definitions until the end of the block; yield the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "dagster-webserver"), "-m", module, "-h", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + SERVER_SECONDS
        while time.monotonic() < until:
            with suppress(OSError):
                urllib.request.urlopen(f"{url}/server_info", timeout=5).close()
                break
            time.sleep(0.3)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def ask(url: str) -> None:
    """Ask what the asset's page asks."""
    body = json.dumps({"query": PAGE}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SERVER_SECONDS) as answer:
        found = json.load(answer)
    if "errors" in found or "assetPartitionStatuses" not in found["data"]["assetNodeOrError"]:
        sys.exit(f"The page cannot be read: {str(found)[:600]}")
