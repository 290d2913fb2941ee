# SPDX-License-Identifier: Apache-2.0
"""The run spec: everything a node needs to know about a run, and nothing else.

Made by `kvseal spec` alone; read by every Ansible role and every node verb. It
holds no defaults: a missing field is an error, as is an unknown one. Sections
of `CommonSpec` are there in every workflow; each workflow adds its own in a
subclass. The published form is run-spec.schema.json beside this module;
docs/formats/run-spec.md says what each field means. Cross-field rules live in
kvseal.spec.rules.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from kvseal import canonical
from kvseal.errors import EvidenceError, OptionError
from kvseal.spec.options import codemods_of
from kvseal.spec.reading import build
from kvseal.spec.sections import (
    Environment,
    Lmcache,
    Matrix,
    Model,
    Program,
    Python,
    Roots,
    Snapkv,
    Verify,
    Vllm,
    Workload,
)

SCHEMA = "kvseal.run-spec.v1"

_S = TypeVar("_S", bound="CommonSpec")


@dataclasses.dataclass(frozen=True)
class CommonSpec:
    """What a run spec `kvseal.run-spec.v1` holds in every workflow.

    `RunSpec`, `VerifySpec` and `MatrixSpec` are the whole ones. `load` and
    `from_json` of this class take all, those of the three only their own.
    """

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

    WORKFLOW: ClassVar[str] = ""

    @property
    def codemods(self) -> tuple[str, ...] | None:
        """The only edits that its engine environment may carry; None means every edit there is."""
        return codemods_of(self.workflow)

    @classmethod
    def load(cls: type[_S], path: str | Path) -> _S:
        """Read a run spec from `path`.

        Raises:
            OptionError: the file can't be read, is not a run spec, or is one of another workflow.
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
    def from_json(cls: type[_S], value: Any) -> _S:
        """Build a run spec from parsed JSON, refusing unknown, missing and mistyped fields.

        Raises:
            OptionError: naming the first field that is wrong.
        """
        spec = build(_kind(value), value, SCHEMA)
        if spec.schema != SCHEMA:
            raise OptionError(
                "run spec of another schema",
                option="schema",
                value=spec.schema,
                expected=SCHEMA,
                remedy="make it again with this kvseal",
            )
        if not isinstance(spec, cls):
            raise OptionError(
                "run spec of another workflow",
                option="workflow",
                value=spec.workflow,
                expected=cls.WORKFLOW,
                remedy=f"`make defconfig-{cls.WORKFLOW}` or `make defconfig-{cls.WORKFLOW}-cpu`, "
                "then `make run-spec.json`",
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


@dataclasses.dataclass(frozen=True)
class RunSpec(CommonSpec):
    """The run spec of the workflow lmcache-snapkv."""

    workload: Workload
    snapkv: Snapkv

    WORKFLOW: ClassVar[str] = "lmcache-snapkv"


@dataclasses.dataclass(frozen=True)
class VerifySpec(CommonSpec):
    """The run spec of the workflow kv-reuse."""

    verify: Verify

    WORKFLOW: ClassVar[str] = "kv-reuse"


@dataclasses.dataclass(frozen=True)
class MatrixSpec(CommonSpec):
    """The run spec of the workflow lmcache-snapkv-matrix."""

    matrix: Matrix

    WORKFLOW: ClassVar[str] = "lmcache-snapkv-matrix"

    @property
    def codemods(self) -> tuple[str, ...] | None:
        """As in every workflow, but without the edits under test where KV goes without identity."""
        return codemods_of(self.workflow, self.matrix.identity)


AnySpec = RunSpec | VerifySpec | MatrixSpec
KINDS: dict[str, type[RunSpec] | type[VerifySpec] | type[MatrixSpec]] = {
    kind.WORKFLOW: kind for kind in (RunSpec, VerifySpec, MatrixSpec)
}


def load_spec(path: str | Path) -> AnySpec:
    """Read a run spec of whichever workflow from `path`.

    Raises:
        OptionError: the file can't be read or is not a run spec.
    """
    return cast(AnySpec, CommonSpec.load(path))  # `_kind` names no other class


def _kind(value: Any) -> type[CommonSpec]:
    """Return the class for the workflow that `value` names."""
    if not isinstance(value, dict):
        return RunSpec  # refused for what it is
    workflow = value.get("workflow")
    if not isinstance(workflow, str) or workflow not in KINDS:
        raise OptionError(
            "run spec of an unknown workflow"
            if "workflow" in value
            else "run spec field is missing",
            option="workflow",
            value=workflow,
            expected=" or ".join(KINDS),
            remedy="a run spec is made by `kvseal spec`, not by hand",
        )
    return KINDS[workflow]
