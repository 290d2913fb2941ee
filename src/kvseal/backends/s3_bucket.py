# SPDX-License-Identifier: Apache-2.0
"""One bucket of an S3 server on loopback: LMCache's configuration for it, and what it holds.

Called by the backends whose adapter is LMCache's `s3`. Reads listings without a
signature; it never writes.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/s3_l2_adapter.py`: the
bucket is part of the host name (no path style), which goes into the Host header
as it is configured.
"""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from typing import Any
from xml.etree import ElementTree

from kvseal.backends.backend import KeyText
from kvseal.backends.needs import Module

CRT = Module("awscrt", "LMCache brings it: install its requirements")
KEY_TEXT = KeyText("v1/distributed/l2_adapters/s3_l2_adapter.py", "_object_key_to_string")
ACCESS_KEY, SECRET_KEY = "kvseal", "kvseal-on-loopback"


def adapter(port: int) -> dict[str, Any]:
    """Return LMCache's configuration for the server at a port of loopback."""
    return {
        "type": "s3",
        "s3_endpoint": f"127.0.0.1:{port}",
        "s3_region": "us-east-1",
        "s3_num_io_threads": 2,
        "s3_prefer_http2": False,
        "disable_tls": True,
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
    }


def answers(port: int) -> bool:
    """True once something at the port speaks HTTP, whatever it thinks of the request.

    Raises:
        OSError: nothing does.
    """
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310  (loopback)
            return True
    except urllib.error.HTTPError:
        return True


def listed_bytes(port: int) -> int:
    """Return the sum of the sizes of all objects in the bucket, all pages of the listing."""
    total, token = 0, ""
    while True:
        query = {"list-type": "2", **({"continuation-token": token} if token else {})}
        url = f"http://127.0.0.1:{port}/?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            page = ElementTree.fromstring(answer.read())  # noqa: S314  (our own server)
        total += sum(int(size.text or 0) for size in page.iterfind("{*}Contents/{*}Size"))
        token = page.findtext("{*}NextContinuationToken") or ""
        if not token:
            return total
