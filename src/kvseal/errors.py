# SPDX-License-Identifier: Apache-2.0
"""The one tree of errors a user can meet, each with its exit status.

KvsealError
├── OptionError              an option, Kconfig symbol or spec field is wrong
├── PrerequisiteError        this machine lacks something that is needed
├── EngineError              vLLM or LMCache did not start, answer or stop
├── StoreError               a KV cache write or read was refused or came out short
├── EvidenceError            a run folder or record can't support a verdict
├── LayoutError              KV bytes whose memory layout is not known
├── TransformError           a transform got, or made, something impossible
└── PatchError               an edit to an installed package can't be made
    └── AnchorMismatchError  the code to edit is not where it must be

All are setup, execution or evidence failures and end with exit status 2. A
check that ran and failed is no error but a verdict (kvseal.verdict). This
module never prints and never exits: kvseal.cli does both.
"""

from __future__ import annotations


class KvsealError(Exception):
    """A failure the user can act on.

    `option` is what the user can set (Kconfig symbol, CLI option, spec field or
    file), `value` what it was, `expected` what would have been right and
    `remedy` what to do next. `str()` joins those that are given.
    """

    exit_status = 2

    def __init__(
        self,
        message: str,
        *,
        option: str | None = None,
        value: object = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.option = option
        self.value = value
        self.expected = expected
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [self.message]
        if self.option is not None:
            shown = "" if self.value is None else f" = {self.value!r}"
            lines.append(f"  option:   {self.option}{shown}")
        elif self.value is not None:
            lines.append(f"  value:    {self.value!r}")
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.remedy is not None:
            lines.append(f"  remedy:   {self.remedy}")
        return "\n".join(lines)


class OptionError(KvsealError):
    """An option, Kconfig symbol or spec field holds something it may not."""


class PrerequisiteError(KvsealError):
    """The machine lacks something the chosen profile needs."""


class EngineError(KvsealError):
    """An engine or cache server did not start, answer, or stop as it must."""


class StoreError(KvsealError):
    """A KV cache store or retrieve was refused, failed, or came out short."""


class EvidenceError(KvsealError):
    """A record is missing, damaged or contradictory: no verdict may rest on it."""


class LayoutError(KvsealError):
    """KV bytes in a memory layout that no codec here knows exactly."""


class TransformError(KvsealError):
    """A KV transform was given, or returned, something that can't be right."""


class PatchError(KvsealError):
    """An edit to an installed package can't be applied or reverted."""


class AnchorMismatchError(PatchError):
    """The code an edit looks for does not stand there exactly once."""
