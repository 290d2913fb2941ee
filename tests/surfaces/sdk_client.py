# SPDX-License-Identifier: Apache-2.0
"""The near end of `sdk_process.py`: one client process, and what it is asked to do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("sdk_process.py")
MODEL = "surfaces/toy"


class RefusedError(Exception):
    """What was ordered was refused, by the server or by the client itself."""


class SDKClient:
    """One client; `variant` and `salt` are empty where none is given."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def connect(self, url: str, http_url: str, model_name: str = MODEL) -> None:
        """Register with a server; before that, with another, `disconnect`."""
        self._order("connect", url=url, http_url=http_url, model_name=model_name)

    def disconnect(self) -> None:
        """Unregister, while the server is there."""
        self._order("disconnect")

    def store(
        self,
        tokens: Sequence[int],
        seed: int,
        salt: str = "",
        variant: str = "",
        *,
        ask: bool = True,
    ) -> str:
        """Write KV of this seed and return its digest."""
        named = {"tokens": list(tokens), "salt": salt, "variant": variant}
        return str(self._order("store", seed=seed, ask=ask, **named))

    def own_store(
        self, tokens: Sequence[int], seed: int, salt: str = "", variant: str = ""
    ) -> bool:
        """Write KV of this seed through LMCache's own client."""
        named = {"tokens": list(tokens), "salt": salt, "variant": variant}
        return bool(self._order("own_store", seed=seed, **named))

    def retrieve(self, tokens: Sequence[int], salt: str = "", variant: str = "") -> Any:
        """Return the digest of the KV of all tokens, else how many tokens were found."""
        return self._order("retrieve", tokens=list(tokens), salt=salt, variant=variant)

    def worker_store(
        self, tokens: Sequence[int], seed: int, salt: str = "", variant: str = ""
    ) -> bool:
        """Write KV of this seed as an engine's worker does."""
        named = {"tokens": list(tokens), "salt": salt, "variant": variant}
        return bool(self._order("worker_store", seed=seed, **named))

    def keys(
        self, tokens: Sequence[int], salt: str = "", variant: str = ""
    ) -> list[dict[str, Any]]:
        """Return the object keys of the tokens, as JSON has them."""
        found = self._order("keys", tokens=list(tokens), salt=salt, variant=variant)
        return list(found)

    def kv_events(self, model_name: str) -> Any:
        """Return the server's KV events of a model name; None where it has no such log."""
        return self._order("kv_events", of=model_name)

    def _order(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
        self._process.stdin.flush()
        text = self._process.stdout.readline()
        assert text, f"the client ended: {self._process.wait(10)}"
        said = json.loads(text)
        if "refused" in said:
            raise RefusedError(said["refused"])
        return said["answer"]


@contextlib.contextmanager
def client_of(environment: Mapping[str, str], log: Path) -> Iterator[SDKClient]:
    """Start a client process for the length of a `with` block."""
    with (
        log.open("a", encoding="utf-8") as written,
        subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        ) as process,
    ):
        try:
            yield SDKClient(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
