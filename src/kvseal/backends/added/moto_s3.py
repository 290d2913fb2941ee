# SPDX-License-Identifier: Apache-2.0
"""moto's S3 in memory, for one bucket that every request means: `python moto_s3.py PORT BUCKET`.

LMCache's adapter names its bucket in the host name alone, and a host name of a
bucket resolves to loopback on few machines. So clients use 127.0.0.1, and the
host that moto sees is the bucket's. Started by kvseal.backends.s3.
"""

from __future__ import annotations

import sys
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.test import Client


class Handler(WSGIRequestHandler):
    """HTTP/1.1, since a connection for each request would be most of the time."""

    protocol_version = "HTTP/1.1"


def main(port: int, bucket: str) -> None:
    """Make the bucket and serve until a signal comes."""
    moto = DomainDispatcherApplication(create_backend_app)

    def in_bucket(environ: dict[str, Any], start_response: Any) -> Any:
        environ["HTTP_HOST"] = f"{bucket}.s3.amazonaws.com"
        return moto(environ, start_response)

    made = Client(in_bucket).put("/")
    if made.status_code != 200:
        raise SystemExit(f"bucket {bucket} can't be made: {made.status} {made.text}")
    run_simple("127.0.0.1", port, in_bucket, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
