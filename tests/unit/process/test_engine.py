# SPDX-License-Identifier: Apache-2.0
"""EngineProcess against real processes that misbehave in the ways engines do."""

import mmap
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kvseal
from kvseal.errors import EngineError, OptionError
from kvseal.process import EngineProcess, leftovers, segment_name
from kvseal.process.segments import SHM
from kvseal.process.tree import descendants, processes

SOURCE = Path(kvseal.__file__).parent.parent

# Starts a child, a grandchild in a session of its own whose parent is gone, and
# a child that hides its environment as a program that sets its title does.
FAMILY = """
import os, signal, subprocess, sys, time
if {stubborn}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"], env={{}})
middle = os.fork()
if middle == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    os._exit(0)
os.waitpid(middle, 0)
print("family is up", flush=True)
{then}
"""


def program(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", textwrap.dedent(text)]


def family(then: str = "time.sleep(300)", stubborn: bool = False) -> list[str]:
    return program(FAMILY.format(then=then, stubborn=stubborn))


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true in time"
        time.sleep(0.02)


def says(log: Path, text: str) -> Callable[[], bool]:
    return lambda: log.exists() and text in log.read_text()


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    return f"test-{os.getpid()}-{tmp_path.name}"


def members(engine: EngineProcess) -> set[int]:
    assert engine.pid is not None
    supervisor = processes()[engine.pid].parent
    return {item.pid for item in descendants([supervisor]) if item.alive}


def gone(pids: set[int]) -> bool:
    table = processes()
    return not any(pid in table and table[pid].alive for pid in pids)


@pytest.mark.parametrize("stubborn", [False, True], ids=["obeys SIGTERM", "ignores SIGTERM"])
def test_stop_ends_the_whole_tree(tmp_path: Path, run_id: str, stubborn: bool) -> None:
    log = tmp_path / "engine.log"
    with EngineProcess(
        "toy", family(stubborn=stubborn), env={}, log=log, run_id=run_id, stop_seconds=1
    ) as engine:
        engine.wait_ready(says(log, "family is up"), timeout_seconds=20)
        wait_for(lambda: len(members(engine)) == 3)
        tree = members(engine)
        assert leftovers(run_id), "a running engine counts as something that is there"
    assert gone(tree)
    assert not leftovers(run_id)
    report = engine.stop()
    assert set(report.terminated) == tree
    assert bool(report.killed) == stubborn
    assert report.status == (-signal.SIGKILL if stubborn else -signal.SIGTERM)


def test_a_crash_of_the_leader_leaves_no_children(tmp_path: Path, run_id: str) -> None:
    log = tmp_path / "engine.log"
    command = family(then="print('cuda error: boom', flush=True); os.abort()")
    with EngineProcess("toy", command, env={}, log=log, run_id=run_id) as engine:
        with pytest.raises(EngineError) as caught:
            engine.wait_ready(lambda: False, timeout_seconds=20)
        assert "SIGABRT" in str(caught.value)
        assert "cuda error: boom" in str(caught.value)
        assert str(log) in str(caught.value)
        assert leftovers(run_id).processes, "its children are still there before the stop"
    assert not leftovers(run_id)
    assert engine.status == -signal.SIGABRT


def test_death_is_seen_at_once_and_not_after_the_timeout(tmp_path: Path) -> None:
    begin = time.monotonic()
    with (
        EngineProcess("toy", program("raise SystemExit(3)"), env={}, log=tmp_path / "l") as engine,
        pytest.raises(EngineError, match="exit status 3"),
    ):
        engine.wait_ready(lambda: False, timeout_seconds=60)
    assert time.monotonic() - begin < 10


def test_not_ready_in_time_names_the_option(tmp_path: Path) -> None:
    def probe() -> bool:
        raise ConnectionRefusedError("nobody listens")

    with (
        EngineProcess(
            "toy", program("import time; time.sleep(60)"), env={}, log=tmp_path / "l"
        ) as engine,
        pytest.raises(EngineError) as caught,
    ):
        engine.wait_ready(probe, timeout_seconds=0.2, interval_seconds=0.05, option="X_SECONDS")
    assert "X_SECONDS" in str(caught.value)
    assert "nobody listens" in str(caught.value)


def test_check_passes_while_it_runs_and_raises_after(tmp_path: Path) -> None:
    log = tmp_path / "l"
    command = program(
        "import sys; print('up', flush=True); sys.stdin.read(); import time\ntime.sleep(60)"
    )
    with EngineProcess("toy", command, env={}, log=log) as engine:
        engine.wait_ready(says(log, "up"), timeout_seconds=20)
        engine.check()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        wait_for(lambda: engine.poll() is not None)
        with pytest.raises(EngineError, match=r"SIGKILL.*out of memory"):
            engine.check()


@pytest.mark.parametrize(
    ("mode", "said"), [(None, "No such file"), (0o644, "Permission denied")], ids=["none", "mode"]
)
def test_a_program_that_cannot_be_executed(tmp_path: Path, mode: int | None, said: str) -> None:
    path = tmp_path / "program"
    if mode is not None:
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
    with pytest.raises(EngineError) as caught:
        EngineProcess("toy", [str(path)], env={}, log=tmp_path / "l").start()
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="file/l"):
        EngineProcess("toy", ["/bin/true"], env={}, log=tmp_path / "file" / "l").start()


def test_environment_is_given_and_this_pythons_own_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    log = tmp_path / "l"
    command = program("import os; print(os.environ.get('PYTHONPATH'), os.environ['ANSWER'], 'end')")
    with EngineProcess("toy", command, env={"ANSWER": "42"}, log=log) as engine:
        wait_for(lambda: engine.poll() is not None)
    assert "None 42 end" in log.read_text()


def test_named_segments_go_and_others_stay(tmp_path: Path, run_id: str) -> None:
    mine, others = segment_name(run_id), segment_name("another-run")
    stranger = SHM / f"lmcache_l1_pool_{others}"
    stranger.write_bytes(b"x")
    try:
        command = program(
            f"open('/dev/shm/lmcache_l1_pool_{mine}', 'w').close(); print('up', flush=True)\n"
            "import os; os.abort()"
        )
        log = tmp_path / "l"
        with EngineProcess("toy", command, env={}, log=log, shared_memory=[mine]) as engine:
            wait_for(lambda: engine.poll() is not None)
            assert leftovers(run_id, shared_memory=[mine]).segments
        assert engine.stop().segments == (f"lmcache_l1_pool_{mine}",)
        assert not leftovers(run_id, shared_memory=[mine])
        assert stranger.exists()
    finally:
        stranger.unlink()


# Makes segments under names of its own and maps them, as vLLM's worker does.
MAPPER = """
import mmap, time
memory = []
for path in {paths!r}:
    with open(path, "w+b") as file:
        file.truncate(4096)
        memory.append(mmap.mmap(file.fileno(), 4096))
print("mapped", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("how", ["stop", "leader killed", "supervisor killed"])
def test_segments_that_the_tree_mapped_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = SHM / f"lmcache_kv_test_{os.getpid()}_{tmp_path.name}"
    log = tmp_path / "l"
    try:
        with EngineProcess(
            "toy", program(MAPPER.format(paths=[str(path)])), env={}, log=log, stop_seconds=5
        ) as engine:
            engine.wait_ready(says(log, "mapped"), timeout_seconds=20)
            assert engine.pid is not None
            if how != "stop":
                wait_for(lambda: engine.poll() is None and engine._segments != [], seconds=30)
                victim = engine.pid if how == "leader killed" else processes()[engine.pid].parent
                os.kill(victim, signal.SIGKILL)
                wait_for(lambda: engine.poll() is not None)
            assert path.exists()
        assert engine.stop().segments == (path.name,)
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_segments_that_were_there_before_or_that_another_maps_stay(tmp_path: Path) -> None:
    name = f"lmcache_kv_test_{os.getpid()}_{tmp_path.name}"
    before, shared = SHM / f"{name}_before", SHM / f"{name}_shared"
    before.write_bytes(b"x" * 4096)
    try:
        text = MAPPER.format(paths=[str(before), str(shared)])
        log = tmp_path / "l"
        with EngineProcess("toy", program(text), env={}, log=log, stop_seconds=5) as engine:
            engine.wait_ready(says(log, "mapped"), timeout_seconds=20)
            with shared.open("r+b") as file:
                memory = mmap.mmap(file.fileno(), 4096)
        assert engine.stop().segments == ()
        assert before.exists()
        assert shared.exists()
        memory.close()
    finally:
        before.unlink(missing_ok=True)
        shared.unlink(missing_ok=True)


def test_a_segment_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not one of ours"):
        EngineProcess("toy", ["/bin/true"], env={}, log=tmp_path / "l", shared_memory=["psm_"])


def test_a_killed_supervisor_takes_its_engine_along_and_stop_finds_the_rest(
    tmp_path: Path, run_id: str
) -> None:
    log = tmp_path / "l"
    engine = EngineProcess("toy", family(), env={}, log=log, run_id=run_id)
    engine.start()
    engine.wait_ready(says(log, "family is up"), timeout_seconds=20)
    wait_for(lambda: len(members(engine)) == 3)
    tree = members(engine)
    assert engine.pid is not None
    os.kill(processes()[engine.pid].parent, signal.SIGKILL)
    wait_for(lambda: engine.poll() == -signal.SIGKILL)
    leader = engine.pid
    wait_for(lambda: gone({leader}))
    report = engine.stop()
    assert report.killed, "the children that outlived the supervisor"
    assert gone(tree)
    assert not leftovers(run_id)


DRIVER = """
import sys, time
sys.path.insert(0, {source!r})
from pathlib import Path
from kvseal.process import EngineProcess, Interrupts
with Interrupts():
    with EngineProcess("toy", {command!r}, env={{}}, log=Path({log!r}), run_id={run_id!r},
                       shared_memory=[{segment!r}], stop_seconds=1):
        print("engine is up", flush=True)
        time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_whatever_ends_the_driver_nothing_is_left(
    tmp_path: Path, run_id: str, number: signal.Signals
) -> None:
    log, segment = tmp_path / "engine.log", segment_name(run_id)
    make = f"open('/dev/shm/pool_{segment}', 'w').close(); time.sleep(300)"
    text = DRIVER.format(
        source=str(SOURCE), command=family(then=make), log=str(log), run_id=run_id, segment=segment
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    try:
        assert driver.stdout.readline() == "engine is up\n"
        wait_for(says(log, "family is up"))
        wait_for((SHM / f"pool_{segment}").exists)
        wait_for(lambda: len(leftovers(run_id).processes) >= 4)
    finally:
        driver.send_signal(number)
        driver.communicate(timeout=60)
    wait_for(lambda: not leftovers(run_id, shared_memory=[segment]), seconds=30)
    if number == signal.SIGKILL:
        assert driver.returncode == -signal.SIGKILL
    else:
        assert driver.returncode not in (0, -signal.SIGKILL)


def test_it_runs_from_a_zip_application(tmp_path: Path) -> None:
    archive = tmp_path / "kvseal.pyz"
    import zipapp

    zipapp.create_archive(
        SOURCE, archive, main="kvseal.cli:main", filter=lambda path: "__pycache__" not in path.parts
    )
    text = f"""
    import sys
    sys.path.insert(0, {str(archive)!r})
    from pathlib import Path
    from kvseal.process import EngineProcess
    log = Path({str(tmp_path / "l")!r})
    with EngineProcess("toy", ["/bin/sleep", "60"], env={{}}, log=log) as engine:
        engine.check()
    print(engine.stop().status)
    """
    done = subprocess.run(program(text), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(-signal.SIGTERM)
