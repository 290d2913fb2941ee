# SPDX-License-Identifier: Apache-2.0
"""The Makefile: what is made again and when, and what a user reads when something is missing.

A stand-in for scripts/bootstrap writes down how it was called and makes the
file that the real command would, so the graph is tested in no time and
nothing is installed.
"""

import re
import shutil
import subprocess

import pytest
import yaml

from kvseal.spec.options import WORKFLOWS

STAND_IN = """\
#!/bin/sh
echo "$*" >>calls
case "$*" in
*up-to-date*) exit "$(cat up-to-date 2>/dev/null || echo 1)" ;;
*ansible-playbook*) exit "$(cat play 2>/dev/null || echo 0)" ;;
*defconfig*) echo "$4" | sed 's/-cpu$//' >.config ;;
*extra-vars*) echo x >extra_vars.yaml ;;
*"kvseal spec"*) printf '{\n  "workflow": "%s",\n' "$(cat .config)" >run-spec.json ;;
esac
"""


@pytest.fixture
def make(checkout, tmp_path):
    """Run make in a copy that has a stand-in; return (process, calls of this run)."""
    top = tmp_path / "a checkout"
    for name in ("Makefile", "Kconfig"):
        (top / name).parent.mkdir(exist_ok=True)
        shutil.copy(checkout / name, top / name)
    for name in ("workflows", "defconfigs"):
        shutil.copytree(checkout / name, top / name)
    for name in ("src/kvseal", "requirements", "scripts"):
        (top / name).mkdir(parents=True)
    (top / "src/kvseal/a.py").write_text("")
    shutil.copy(checkout / "scripts/help", top / "scripts/help")
    (top / "scripts/bootstrap").write_text(STAND_IN)
    (top / "scripts/bootstrap").chmod(0o755)

    def run(*arguments):
        calls = top / "calls"
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            ["make", *arguments], cwd=top, capture_output=True, text=True, check=False
        )
        return done, calls.read_text().splitlines() if calls.exists() else []

    run.top = top
    return run


@pytest.mark.parametrize(
    "goal", ["all", "lmcache-snapkv-run", "kv-reuse", "run-spec.json", "olddefconfig"]
)
@pytest.mark.parametrize("option", ["-s", "-n", "-j4"])
def test_without_configuration_the_profiles_are_named(make, goal, option):
    done, calls = make(option, goal)
    assert done.returncode == 2
    assert "make defconfig-lmcache-snapkv-cpu" in done.stderr
    assert not calls


@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("goals", [(), ("{}",)])
def test_make_goes_the_whole_way_once(make, workflow, goals):
    make(f"defconfig-{workflow}-cpu")
    goals = [goal.format(workflow) for goal in goals]
    done, calls = make("-j4", *goals)
    assert done.returncode == 0
    assert [call.split()[0] for call in calls] == ["python", "kvseal", "kvseal", "ansible-playbook"]
    assert calls[-1].startswith(f"ansible-playbook playbooks/{workflow}.yml -e ")
    assert "--tags" not in calls[-1]
    (make.top / "up-to-date").write_text("0")
    done, calls = make(*goals)
    assert done.returncode == 0
    assert calls == ["kvseal spec --up-to-date run-spec.json"]


def test_a_stage_always_runs(make):
    make("defconfig-lmcache-snapkv-cpu")
    (make.top / "up-to-date").write_text("0")
    make("lmcache-snapkv-run")
    _, calls = make("lmcache-snapkv-run")
    (call,) = calls
    assert call.startswith("ansible-playbook playbooks/lmcache-snapkv.yml -e {")
    assert f'"{make.top}/run-spec.json"' in call and call.endswith("--tags run")


def stages(checkout, workflow):
    text = (checkout / f"workflows/{workflow.replace('-', '_')}/Makefile").read_text()
    return re.search(r"^[A-Z_]+_STAGES := (.*)$", text, re.MULTILINE)[1].split()


def tags_of(folder, name):
    """Tags of the tasks of a play or task file, those it imports included."""
    (*tasks,) = yaml.safe_load((folder / name).read_text())
    if "hosts" in tasks[0]:
        tasks = tasks[0]["tasks"]
    tags = set()
    for task in tasks:
        if (imported := task.get("ansible.builtin.import_tasks")) is not None:
            tags |= tags_of(folder, imported)
        else:
            tags |= {task["tags"]} if isinstance(task["tags"], str) else set(task["tags"])
    return tags


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_each_stage_is_a_target_with_its_tag(make, checkout, workflow):
    """A tag that no task has would make a stage that does nothing and succeeds."""
    make(f"defconfig-{workflow}-cpu")
    names = stages(checkout, workflow)
    assert {"doctor", "fetch", "build", "patch", "run", "report", "clean"} <= set(names)
    tags = tags_of(checkout / "playbooks", f"{workflow}.yml")
    for name in names:
        done, calls = make(f"{workflow}-{name}")
        assert done.returncode == 0
        assert calls[-1].startswith(f"ansible-playbook playbooks/{workflow}.yml ")
        tag = calls[-1].rpartition(" --tags ")[2]
        assert tag in tags, name


@pytest.mark.parametrize(
    ("configured", "goal"),
    [
        ("lmcache-snapkv", "kv-reuse"),
        ("lmcache-snapkv", "kv-reuse-run"),
        ("lmcache-snapkv", "kv-reuse-clean"),
        ("lmcache-snapkv", "lmcache-snapkv-matrix"),
        ("lmcache-snapkv", "lmcache-snapkv-matrix-run"),
        ("lmcache-snapkv-matrix", "lmcache-snapkv"),
        ("lmcache-snapkv-matrix", "lmcache-snapkv-run"),
    ],
)
def test_a_target_of_another_workflow_is_refused_and_nothing_run(make, configured, goal):
    """Also where one's name begins another's."""
    make(f"defconfig-{configured}-cpu")
    done, calls = make(goal)
    other = max((name for name in WORKFLOWS if goal.startswith(name)), key=len)
    assert done.returncode == 2
    assert f".config is for {configured};" in done.stderr
    assert re.search(rf"make\s+defconfig-{other}-cpu", done.stderr)
    assert not [call for call in calls if "ansible" in call or "up-to-date" in call]


def test_failure_of_a_play_is_exit_2(make):
    make("defconfig-lmcache-snapkv-cpu")
    (make.top / "play").write_text("4")
    assert make()[0].returncode == 2
    assert make("lmcache-snapkv-doctor")[0].returncode == 2


@pytest.mark.parametrize(
    ("touched", "expected"),
    [
        (".config", ["extra-vars", "kvseal spec --vars"]),
        ("workflows/lmcache_snapkv/Kconfig", ["extra-vars", "kvseal spec --vars"]),
        ("workflows/kv_reuse/Kconfig", ["extra-vars", "kvseal spec --vars"]),
        ("workflows/lmcache_snapkv_matrix/Kconfig", ["extra-vars", "kvseal spec --vars"]),
        ("workflows/Kconfig.common", ["extra-vars", "kvseal spec --vars"]),
        ("src/kvseal/a.py", ["kvseal spec --vars"]),
        ("src/kvseal/new.py", ["kvseal spec --vars"]),
        ("requirements/new.txt", ["kvseal spec --vars"]),
        ("Makefile", []),
    ],
)
def test_what_is_made_again(make, touched, expected):
    make("defconfig-lmcache-snapkv-cpu", "run-spec.json")
    assert make("run-spec.json")[1] == []
    subprocess.run(["touch", "-d", "+2 seconds", make.top / touched], check=True)
    _, calls = make("run-spec.json")
    assert len(calls) == len(expected)
    assert all(part in call for part, call in zip(expected, calls, strict=True))


def test_file_taken_away_is_noticed(make):
    (make.top / "src/kvseal/b.py").write_text("")
    make("defconfig-lmcache-snapkv-cpu", "run-spec.json")
    subprocess.run(["touch", "-d", "+2 seconds", make.top / "run-spec.json"], check=True)
    (make.top / "src/kvseal/b.py").unlink()
    subprocess.run(["touch", "-d", "+4 seconds", make.top / "src/kvseal"], check=True)
    assert len(make("run-spec.json")[1]) == 1


def test_help_has_every_target(make):
    done, calls = make("help")
    assert done.returncode == 0 and not calls
    text = (make.top / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE))
    for name in " ".join(targets).split():
        if name != "FORCE":
            assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE), name
    assert "  defconfig-PROFILE " in done.stdout
    for workflow in WORKFLOWS:
        assert f"  {workflow} " in done.stdout
        for stage in stages(make.top, workflow):
            assert f"  {workflow}-{stage} " in done.stdout
    for profile in (make.top / "defconfigs").iterdir():
        assert f"  {profile.name} " in done.stdout


def test_defconfig_needs_a_file(make):
    done, calls = make("defconfig")
    assert done.returncode == 2 and "FROM=FILE" in done.stderr and not calls
    done, calls = make("defconfig", "FROM=a b")
    assert calls == ["python scripts/kconfig.py defconfig-file a b"]


def test_distclean_keeps_results(make):
    make("defconfig-lmcache-snapkv-cpu", "run-spec.json")
    for name in ("results/runs", "build/x"):
        (make.top / name).mkdir(parents=True)
    assert make("distclean")[0].returncode == 0
    left = {path.name for path in make.top.iterdir()}
    assert "results" in left
    assert not left & {".config", "extra_vars.yaml", "run-spec.json", "build"}
