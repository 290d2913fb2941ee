# SPDX-License-Identifier: Apache-2.0
"""The run spec: everything a node needs to know about a run, and nothing else.

Made by `kvseal spec` alone; read by every Ansible role and every node verb. It
holds no defaults: a missing field is an error, as is an unknown one. The
published form is run-spec.schema.json beside this module; docs/formats/run-spec.md
says what each field means. Cross-field rules live in kvseal.spec.rules.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from kvseal import canonical
from kvseal.errors import EvidenceError, OptionError

SCHEMA = "kvseal.run-spec.v1"
WORKFLOW = "lmcache-snapkv"

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Program:
    """The kvseal that runs on the node; `archive` is an absolute path on the controller."""

    version: str
    archive: str
    archive_sha256: str


@dataclasses.dataclass(frozen=True)
class Roots:
    """Absolute folders: `work` and `cache` on the node, `results` on the controller."""

    work: str
    results: str
    cache: str


@dataclasses.dataclass(frozen=True)
class Python:
    """The Python of the engine environment, as `major.minor`."""

    version: str


@dataclasses.dataclass(frozen=True)
class Environment:
    """The engine environment: hash lock, what is installed before it, and where.

    `lock` is an absolute path on the controller. `torch` is a requirement to
    install before the lock, empty where the lock holds torch itself.
    """

    name: str
    path: str
    lock: str
    lock_sha256: str
    torch: str


@dataclasses.dataclass(frozen=True)
class Vllm:
    """The vLLM that serves the model."""

    distribution: str
    version: str
    dtype: str
    block_size_tokens: int
    max_model_len_tokens: int
    gpu_memory_percent: int
    cpu_kv_gib: int
    visible_devices: str
    port: int
    start_timeout_seconds: int


@dataclasses.dataclass(frozen=True)
class Lmcache:
    """The LMCache server and where it comes from."""

    source: str
    version: str
    repository: str
    ref: str
    chunk_size_tokens: int
    l1_gib: int
    port: int
    http_port: int
    start_timeout_seconds: int


@dataclasses.dataclass(frozen=True)
class Model:
    """The model's weights: `package`, `hub` or `path`."""

    source: str
    name: str
    revision: str


@dataclasses.dataclass(frozen=True)
class Workload:
    """The prompts: seeded tasks, or one named data set in their place."""

    datasets: tuple[str, ...]
    dataset_file: str
    dataset_hub: str
    dataset_revision: str
    prompts: int
    prompt_tokens: int
    new_tokens: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Snapkv:
    """The compaction under test."""

    drop_percent: int
    window_tokens: int
    kernel_tokens: int
    reference: bool


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """A whole run spec, `kvseal.run-spec.v1`."""

    schema: str
    workflow: str
    run: bool
    device: str
    kvseal: Program
    roots: Roots
    python: Python
    environment: Environment
    vllm: Vllm
    lmcache: Lmcache
    model: Model
    workload: Workload
    snapkv: Snapkv

    @classmethod
    def load(cls, path: str | Path) -> RunSpec:
        """Read a run spec from `path`.

        Raises:
            OptionError: the file can't be read or is not a run spec.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"run spec can't be read: {error}",
                option=str(path),
                remedy="`make run-spec.json` makes one from .config",
            ) from None
        try:
            return cls.from_json(canonical.loads_strict(text))
        except (OptionError, EvidenceError) as error:
            raise OptionError(
                f"{path}: {error.message}",
                option=error.option,
                value=error.value,
                expected=error.expected,
                remedy=error.remedy,
            ) from None

    @classmethod
    def from_json(cls, value: Any) -> RunSpec:
        """Build a run spec from parsed JSON, refusing unknown, missing and mistyped fields.

        Raises:
            OptionError: naming the first field that is wrong.
        """
        spec = _build(cls, value, "")
        if spec.schema != SCHEMA:
            raise OptionError(
                "run spec of another schema",
                option="schema",
                value=spec.schema,
                expected=SCHEMA,
                remedy="make it again with this kvseal",
            )
        return spec

    def to_json(self) -> dict[str, Any]:
        """Return the run spec as plain JSON values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    def dumps(self) -> str:
        """Return the run spec as indented JSON text with a final newline."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"

    def sha256(self) -> str:
        """Return the spec digest: SHA-256 of the canonical bytes. Run IDs carry its head."""
        return canonical.digest(self.to_json())


def _build(kind: type[_T], value: Any, path: str) -> _T:
    if not isinstance(value, dict):
        raise OptionError(
            "run spec field must be an object",
            option=path or "run spec",
            value=value,
            expected="a JSON object",
        )
    hints = get_type_hints(kind)
    unknown = sorted(set(value) - set(hints))
    missing = [name for name in hints if name not in value]
    if unknown or missing:
        name = (unknown or missing)[0]
        raise OptionError(
            "unknown run spec field" if unknown else "run spec field is missing",
            option=f"{path}.{name}".lstrip("."),
            expected=f"exactly the fields of {SCHEMA}",
            remedy="a run spec is made by `kvseal spec`, not by hand",
        )
    fields = {
        name: _field(hint, value[name], f"{path}.{name}".lstrip("."))
        for name, hint in hints.items()
    }
    return kind(**fields)


def _field(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, path)
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise OptionError(
            "run spec field has the wrong type", option=path, value=value, expected="a list of text"
        )
    # bool is an int in Python; in a spec they never stand for each other.
    if type(value) is not hint:
        raise OptionError(
            "run spec field has the wrong type",
            option=path,
            value=value,
            expected=str(hint.__name__),
        )
    return value
