# SPDX-License-Identifier: Apache-2.0
"""Start, watch and stop other programs, and leave nothing of them behind.

An engine is a tree of processes, shared-memory segments and ports. Every tree
started here hangs below a supervisor (kvseal.process.supervisor) that takes it
down when asked, and also when the driver that asked for it is gone. Nothing
here knows vLLM or LMCache: kvseal.engines does. Called by engines, backends
and drivers; standard library only.
"""

from kvseal.process.engine import EngineProcess, StopReport, source_root
from kvseal.process.interrupts import Interrupted, Interrupts, shielded
from kvseal.process.leftovers import Leftovers, leftovers
from kvseal.process.logs import log_tail
from kvseal.process.ports import PortHolder, free_port, port_holder
from kvseal.process.progress import Progress
from kvseal.process.segments import remove_segments, segment_name, segments

__all__ = [
    "EngineProcess",
    "Interrupted",
    "Interrupts",
    "Leftovers",
    "PortHolder",
    "Progress",
    "StopReport",
    "free_port",
    "leftovers",
    "log_tail",
    "port_holder",
    "remove_segments",
    "segment_name",
    "segments",
    "shielded",
    "source_root",
]
