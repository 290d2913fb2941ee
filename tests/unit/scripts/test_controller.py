# SPDX-License-Identifier: Apache-2.0
"""The controller environment: named by what it is made from, complete or built again."""

import os
import subprocess
import sys
import threading

import pytest

from kvseal.errors import PrerequisiteError


@pytest.fixture
def built(controller, monkeypatch):
    """Replace the slow build by one that leaves a folder; return the list of builds."""
    builds = []

    def build(kind, path):
        builds.append(path)
        path.mkdir()
        (path / controller.STAMP).write_text("")

    monkeypatch.setattr(controller, "_build", build)
    return builds


def test_built_once_then_entered(controller, built, tmp_path):
    first = controller.ensure("controller", tmp_path / "cache")
    assert controller.ensure("controller", tmp_path / "cache") == first == built[0]
    assert len(built) == 1


def test_environments_do_not_meet(controller, tmp_path, monkeypatch):
    paths = {controller.environment_path(kind, tmp_path) for kind in ("controller", "dev")}
    monkeypatch.setattr(sys, "version", "another")
    paths.add(controller.environment_path("controller", tmp_path))
    monkeypatch.setattr(controller, "CHECKOUT", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("uv.txt", "controller.txt"):
        (tmp_path / "requirements" / name).write_text("x==1\n")
    paths.add(controller.environment_path("controller", tmp_path))
    (tmp_path / "requirements" / "controller.txt").write_text("x==2\n")
    paths.add(controller.environment_path("controller", tmp_path))
    assert len(paths) == 5


def test_half_built_is_removed_first(controller, tmp_path, monkeypatch):
    path = controller.environment_path("controller", tmp_path)
    path.mkdir(parents=True)
    (path / "rest").write_text("")
    monkeypatch.setattr(
        controller,
        "_step",
        lambda name, command, variables: (_ for _ in ()).throw(PrerequisiteError(name)),
    )
    with pytest.raises(PrerequisiteError, match="Python environment"):
        controller.ensure("controller", tmp_path)
    assert not (path / "rest").exists()
    assert not (path / controller.STAMP).exists()


def test_two_at_a_time_build_once(controller, built, tmp_path):
    threads = [
        threading.Thread(target=controller.ensure, args=("controller", tmp_path)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_failed_step_shows_its_output_and_remedy(controller):
    with pytest.raises(PrerequisiteError) as caught:
        controller._step("packages", [sys.executable, "-c", "print('no such wheel'); exit(3)"], {})
    text = str(caught.value)
    assert "status 3" in text and "no such wheel" in text and "remedy" in text


def test_long_step_says_that_it_goes_on(controller, monkeypatch, capsys):
    monkeypatch.setattr(controller, "PROGRESS_SECONDS", 0.05)
    controller._step("packages", [sys.executable, "-c", "import time; time.sleep(0.3)"], {})
    assert "packages: 0 s" in capsys.readouterr().err


def test_unusable_cache_is_named(controller, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError) as caught:
        controller.ensure("controller", tmp_path / "file" / "cache")
    assert caught.value.option == "KVSEAL_CACHE"


def bootstrap(checkout, tmp_path, pythons, **environment):
    """Run scripts/bootstrap where PATH holds these fake Pythons only."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in pythons.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for tool in ("sh", "dirname", "tail"):
        if not (folder / tool).exists():
            (folder / tool).symlink_to(
                f"/bin/{tool}"
                if os.path.exists(f"/bin/{tool}")  # noqa: PTH110
                else f"/usr/bin/{tool}"
            )
    script = (checkout / "scripts/bootstrap").read_text().replace(" /usr/bin/python3}", "}")
    (tmp_path / "bootstrap").write_text(script)
    return subprocess.run(
        ["/bin/sh", str(tmp_path / "bootstrap"), "true"],
        env={"PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_python_that_will_not_do_is_named(checkout, tmp_path):
    done = bootstrap(
        checkout,
        tmp_path,
        {
            "python3": 'echo "3.8.10 is older than 3.10"; exit 1',
            "python3.12": 'echo "3.12.1 lacks the module ensurepip"; exit 1',
        },
    )
    assert done.returncode == 2
    assert "python3: 3.8.10 is older than 3.10" in done.stderr
    assert "python3.12: 3.12.1 lacks the module ensurepip" in done.stderr
    assert "remedy:" in done.stderr and "python3-venv" in done.stderr


def test_no_python_at_all(checkout, tmp_path):
    done = bootstrap(checkout, tmp_path, {})
    assert done.returncode == 2 and "none on PATH" in done.stderr


def test_first_python_that_will_do_is_taken(checkout, tmp_path):
    good = 'test "$1" = -c && echo "$0" && exit 0; echo "$0 took $@"'
    done = bootstrap(checkout, tmp_path, {"python3": "exit 1", "python3.11": good})
    assert done.returncode == 0
    assert "python3.11 took" in done.stdout and done.stdout.rstrip().endswith("controller.py true")


def test_chosen_python_is_the_only_one_asked(checkout, tmp_path):
    done = bootstrap(
        checkout, tmp_path, {"python3": "exit 0", "bad": "exit 1"}, KVSEAL_PYTHON="bad"
    )
    assert done.returncode == 2
    assert "KVSEAL_PYTHON = 'bad'" in done.stderr
