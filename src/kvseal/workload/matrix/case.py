# SPDX-License-Identifier: Apache-2.0
"""What a case of the matrix is made of, and what a restart changes about it.

A case says which artifacts are stored, and then what is asked or done, step by
step, each step with the result it must have. Where and when it runs, the
backend and the restart between store and first ask, is not the case's business
but for the few that can exist in some backends only. Called by the table
beside this file, the driver and the checker.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

PROCESS, MP, NATIVE, FS = "process", "mp", "native", "fs"
BEHIND: Mapping[str, bool] = {
    FS: True,
    "fs_native": True,
    "resp": True,
    "valkey": True,
    "s3": True,
    "s3_rclone": True,
    "dax": False,
    "mock": False,
    "plugin": True,
    "native_plugin": True,
    "fault_inject": True,
}
"""The server with a second tier behind its memory, which is emptied before each ask: the kind of
tier → whether what is in it lasts over a restart of the server. Source: kvseal.backends."""
SERVED = (MP, NATIVE, *BEHIND)
"""The backends that are an LMCache server and a vLLM."""
BACKENDS = (PROCESS, *SERVED)
"""LMCache inside one process; its server with shared memory; the same with vLLM's own
prefix cache on; the same server with each second tier."""

NONE, ENGINE, SERVER, BOTH = "none", "engine", "server", "both"
AFTERS = (NONE, ENGINE, SERVER, BOTH)
"""What was restarted between storing and asking."""


class Required(enum.Enum):
    """What a step must come to.

    HIT: every whole chunk of the artifact was loaded, and the answer is the artifact's own.
    MISS: nothing was loaded, and the answer is that of a cache-disabled control.
    REFUSED: an error, with nothing loaded or stored.
    SEEN: what was observed is what the case says.
    """

    HIT = "hit"
    MISS = "miss"
    REFUSED = "refused"
    SEEN = "seen"


ORDINARY = "ordinary"
EXACT = "exact"
INDEX = "index"
ARTIFACT, FIELD, TEXT = "artifact:", "field:", "text:"
"""How a request names what it wants: not at all, by the artifact's own variant, or by what
the variant index has for its recipe; and, each followed by what it means, by the variant of
another artifact, by that of a manifest which differs in one field alone, or by a text."""


@dataclass(frozen=True)
class Ask:
    """A request.

    prompt: the artifact whose token IDs it begins with.
    identity: see EXACT.
    salt: `cell`, the tenant that stored; `other`, another one; `variant`, the
        text of the artifact's variant; `mark`, that text as it stands in keys.
    suffix_chunks: whole chunks that follow the artifact's tokens, before the tail.
    descendants: how many of them a full hit has too, since they were computed on it before.
    before_restart: asked with the stores, not after the restart.
    """

    prompt: str
    identity: str
    required: Required
    salt: str = "cell"
    suffix_chunks: int = 0
    descendants: int = 0
    before_restart: bool = False


@dataclass(frozen=True)
class Act:
    """Something else than a request: done to `artifact`, seen as `expected`.

    kind: one of those of kvseal.drivers.matrix.acts.
    required: SEEN, with what must be seen in `expected`; or REFUSED.
    before_restart: as in Ask.
    """

    kind: str
    artifact: str
    required: Required = Required.SEEN
    expected: str = ""
    before_restart: bool = False


Step = Ask | Act


@dataclass(frozen=True)
class Case:
    """One row of the matrix.

    name: stable, unique; group: where the row comes from.
    producer, consumer: in words, for people.
    store: artifacts put into the cache first, in this order.
    steps: what is asked or done, in this order.
    refused_stores: which of `store`, by index, must be refused.
    lie: how the first artifact of `store` is falsified before it is stored, or where to.
    backends, afters: where the case is run; `elsewhere` says why not in the others.
    """

    name: str
    group: str
    producer: str
    consumer: str
    store: tuple[str, ...]
    steps: tuple[Step, ...]
    refused_stores: tuple[int, ...] = ()
    lie: str = ""
    backends: tuple[str, ...] = BACKENDS
    afters: tuple[str, ...] = AFTERS
    elsewhere: str = ""

    @property
    def needs_identity(self) -> bool:
        """True where a stack that names no transformed KV has nothing that could be asked."""
        return bool(self.lie) or any(
            isinstance(step, Act)
            or step.identity == INDEX
            or step.identity.startswith(TEXT)
            or step.salt in ("variant", "mark")
            for step in self.steps
        )

    @property
    def artifacts(self) -> frozenset[str]:
        """The artifacts that it stores, asks for or names."""
        names = set(self.store)
        for step in self.steps:
            names.add(step.artifact if isinstance(step, Act) else step.prompt)
            if isinstance(step, Ask) and step.identity.startswith(ARTIFACT):
                names.add(step.identity.removeprefix(ARTIFACT))
        return frozenset(names)

    def runs_in(self, backend: str, after: str) -> bool:
        """Whether the table has it in this backend after this restart."""
        return backend in self.backends and after in self.afters

    @property
    def required(self) -> Required:
        """What the row is about: its last step, or its refused store."""
        return self.steps[-1].required if self.steps else Required.REFUSED


def survives(local: bool, backend: str, after: str) -> bool:
    """Whether an artifact is still there: request-local ones never leave the server's memory."""
    if backend == PROCESS:
        return after == NONE
    if backend in BEHIND:
        return not local and (BEHIND[backend] or after in (NONE, ENGINE))
    return after in (NONE, ENGINE)


def required_here(step: Step, *, local: bool, backend: str, after: str) -> Required:
    """Return what `step` must come to in one cell.

    local: whether the artifact it asks for is request-local.
    """
    lost = not step.before_restart and not survives(local, backend, after)
    if step.before_restart and backend in BEHIND and local:
        lost = True
    if isinstance(step, Ask) and step.required is Required.HIT and lost:
        return Required.MISS
    return step.required
