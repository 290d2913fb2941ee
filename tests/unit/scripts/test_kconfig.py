# SPDX-License-Identifier: Apache-2.0
"""Profiles load whole or not at all, and every mistake is told with its line."""

from pathlib import Path

import pytest
import yaml

from kvseal.errors import OptionError
from kvseal.spec.options import LMCACHE_SNAPKV, LMCACHE_SNAPKV_MATRIX, WORKFLOWS

ROOT = LMCACHE_SNAPKV.root


@pytest.fixture
def run(kconfig, tmp_path, monkeypatch):
    """Run a verb in an empty folder; return that folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KCONFIG_CONFIG", raising=False)

    def verb(*argv):
        assert kconfig.main(list(argv)) == 0
        return tmp_path

    return verb


@pytest.fixture
def profile(tmp_path):
    """Write a profile of the given lines, below the workflow's own; return its path."""

    def write(*lines, workflow=f"CONFIG_{ROOT}=y"):
        path = tmp_path / "profile"
        path.write_text("\n".join([workflow, *lines]) + "\n")
        return str(path)

    return write


def names(checkout):
    return sorted(path.name for path in (checkout / "defconfigs").iterdir())


def test_profiles_round_trip(run, kconfig, checkout):
    """What savedefconfig writes is the profile itself: it holds only what differs."""
    assert names(checkout) == kconfig.profiles()
    both = {f"{name}{end}" for name in WORKFLOWS for end in ("", "-cpu")}
    assert set(names(checkout)) == both | {"lmcache-snapkv-matrix-tiers-cpu"}
    for name in names(checkout):
        folder = run("defconfig", name)
        config = (folder / ".config").read_text()
        run("savedefconfig")
        lines = (checkout / "defconfigs" / name).read_text().splitlines()
        ours = [line for line in lines if not line.startswith("# ") or line.endswith("is not set")]
        assert sorted(line for line in ours if line != "#") == sorted(
            (folder / "defconfig").read_text().split("\n")[:-1]
        )
        run("defconfig-file", f"{folder}/defconfig")
        assert (folder / ".config").read_text() == config


def test_profiles_are_short_and_say_what_they_are_for(checkout):
    for name in names(checkout):
        lines = (checkout / "defconfigs" / name).read_text().splitlines()
        assert len(lines) <= 40
        assert lines[0].startswith("# ") and not lines[0].endswith("is not set")


@pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=WORKFLOWS)
def test_variables_have_every_option_with_its_type(run, kconfig, workflow):
    folder = run("defconfig", f"{workflow.name}-cpu")
    run("extra-vars")
    variables = yaml.safe_load((folder / "extra_vars.yaml").read_text())
    roots = {other.root.lower(): bool for other in WORKFLOWS.values()}
    assert {name: type(value) for name, value in variables.items()} == roots | {
        option.variable: option.kind for option in workflow.options
    }
    assert [name for name in roots if variables[name]] == [workflow.root.lower()]


def test_hidden_symbols_are_absent_and_not_false(run, profile):
    folder = run("defconfig-file", profile(workflow=f"# CONFIG_{ROOT} is not set"))
    run("extra-vars")
    assert yaml.safe_load((folder / "extra_vars.yaml").read_text()) == {
        workflow.root.lower(): False for workflow in WORKFLOWS.values()
    }


def test_text_survives_the_way_to_yaml(run, profile):
    text = 'a "quoted" \\ back: #no comment, é'
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    folder = run("defconfig-file", profile(f'CONFIG_{ROOT}_MODEL="{escaped}"'))
    run("extra-vars")
    variables = yaml.safe_load((folder / "extra_vars.yaml").read_text())
    assert variables[f"{ROOT}_MODEL".lower()] == text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"CONFIG_{ROOT}_DORP_PERCENT=50", f"perhaps CONFIG_{ROOT}_DROP_PERCENT"),
        (f"# CONFIG_{ROOT}_RUNN is not set", f"perhaps CONFIG_{ROOT}_RUN"),
        ('CONFIG_KNLP_SNAPKV_DROP_RATOI="0.5"', "perhaps CONFIG_KNLP_SNAPKV_DROP_RATIO"),
        (f"CONFIG_{ROOT}_DROP_PERCENT=100", "an integer, 1 to 99"),
        (f"CONFIG_{ROOT}_DROP_PERCENT=0", "an integer, 1 to 99"),
        (f"CONFIG_{ROOT}_DROP_PERCENT=0.5", "an integer, 1 to 99"),
        (f'CONFIG_{ROOT}_DROP_PERCENT="50"', "an integer, 1 to 99"),
        (f"CONFIG_{ROOT}_DROP_PERCENT=", "an integer, 1 to 99"),
        (f"CONFIG_{ROOT}_RUN=yes", "y or n"),
        (f'CONFIG_{ROOT}_RUN="y"', "y or n"),
        (f"CONFIG_{ROOT}_MODEL=Qwen", "text in double quotes"),
        ('CONFIG_KNLP_SNAPKV_DROP_RATIO="0.555"', "a ratio that is a whole percent"),
        (f"{ROOT}_RUN=y", "CONFIG_NAME=value"),
        ("RUN = y", "CONFIG_NAME=value"),
    ],
)
def test_bad_line_is_told_and_nothing_written(run, profile, line, expected):
    path = profile("", line)
    with pytest.raises(OptionError) as caught:
        run("defconfig-file", path)
    assert "profile:3:" in str(caught.value)
    assert expected in str(caught.value)
    assert not list(Path(path).parent.glob(".config*"))


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("CONFIG_{}_MATRIX_BACKEND_MPP=y", "CONFIG_{}_MATRIX_BACKEND_MP"),
        ("CONFIG_{}_MATRIX_SEEED=1", "CONFIG_{}_MATRIX_SEED"),
        ("CONFIG_{}_REFERENC=y", "CONFIG_{}_REFERENCE"),
    ],
)
def test_a_misspelt_symbol_is_told_with_the_nearest_of_its_own_workflow(run, profile, line, near):
    """The matrix's root begins with the comparison's."""
    with pytest.raises(OptionError) as caught:
        run("defconfig-file", profile(line.format(ROOT)))
    assert caught.value.expected == f"perhaps {near.format(ROOT)}"


def test_a_symbol_of_the_matrix_depends_on_the_matrix_and_not_on_the_comparison(run, profile):
    matrix = LMCACHE_SNAPKV_MATRIX.root
    with pytest.raises(OptionError, match="depends on another") as caught:
        run("defconfig-file", profile(f"CONFIG_{matrix}_SEED=1"))
    assert caught.value.expected == f"{matrix} to be set"
    folder = run(
        "defconfig-file", profile(f"CONFIG_{matrix}_SEED=1", workflow=f"CONFIG_{matrix}=y")
    )
    assert f"CONFIG_{matrix}_SEED=1\n" in (folder / ".config").read_text()
    assert f"CONFIG_{ROOT}_SEED" not in (folder / ".config").read_text()


def test_old_configuration_survives_a_bad_profile(run, profile):
    folder = run("defconfig", "lmcache-snapkv-cpu")
    before = (folder / ".config").read_text()
    with pytest.raises(OptionError):
        run("defconfig-file", profile("CONFIG_NONE=y"))
    assert (folder / ".config").read_text() == before


def test_unmet_dependency_is_told(run, profile):
    path = profile(f"CONFIG_{ROOT}_RUN=y", workflow=f"# CONFIG_{ROOT} is not set")
    with pytest.raises(OptionError, match="depends on another") as caught:
        run("defconfig-file", path)
    assert caught.value.expected == f"{ROOT} to be set"


def test_two_values_for_one_symbol_are_told(run, profile):
    twice = [f"CONFIG_{ROOT}_SEED=1", f"CONFIG_{ROOT}_SEED=2"]
    with pytest.raises(OptionError, match="profile:3: set before, at profile:2"):
        run("defconfig-file", profile(*twice))
    run("defconfig-file", profile(twice[0], twice[0]))


def test_all_mistakes_come_together(run, profile):
    with pytest.raises(OptionError) as caught:
        run("defconfig-file", profile("CONFIG_A=y", "CONFIG_B=y", "CONFIG_C=y"))
    assert str(caught.value).startswith("3 problems")


@pytest.mark.parametrize("verb", ["olddefconfig", "savedefconfig", "extra-vars"])
def test_bad_config_is_told_by_every_verb(run, tmp_path, verb):
    (tmp_path / ".config").write_text(f"CONFIG_{ROOT}=y\nCONFIG_{ROOT}_SEEED=1\n")
    with pytest.raises(OptionError, match=r"\.config:2: unknown symbol"):
        run(verb)
    assert [path.name for path in tmp_path.iterdir()] == [".config"]


def test_olddefconfig_fills_in(run, tmp_path):
    (tmp_path / ".config").write_text(f"CONFIG_{ROOT}=y\nCONFIG_{ROOT}_SEED=7\n")
    run("olddefconfig")
    text = (tmp_path / ".config").read_text()
    assert f"CONFIG_{ROOT}_SEED=7\n" in text and f"CONFIG_{ROOT}_DROP_PERCENT=50\n" in text


def test_knlp_profile_loads_with_a_notice_a_symbol(run, tmp_path, capsys):
    lines = [
        "CONFIG_KNLP_LMCACHE_SNAPKV=y",
        'CONFIG_KNLP_SNAPKV_WORK_ROOT="./w"',
        'CONFIG_KNLP_SNAPKV_VLLM_VERSION="0.23.0"',
        'CONFIG_KNLP_SNAPKV_PYTHON="python3.12"',
        'CONFIG_KNLP_SNAPKV_LMCACHE_REPO="https://git.example/lmcache"',
        'CONFIG_KNLP_SNAPKV_LMCACHE_REF="dev"',
        "CONFIG_KNLP_SNAPKV_NUM_PROMPTS=20",
        'CONFIG_KNLP_SNAPKV_DROP_RATIO="0.6"',
        'CONFIG_KNLP_SNAPKV_GPU_MEMORY_UTILIZATION="0.35"',
        'CONFIG_KNLP_SNAPKV_L1_SIZE_GB="4"',
        'CONFIG_KNLP_SNAPKV_CUDA_VISIBLE_DEVICES="1"',
    ]
    (tmp_path / "knlp").write_text("\n".join(lines) + "\n")
    run("defconfig-file", str(tmp_path / "knlp"))
    notices = capsys.readouterr().err
    for number, line in enumerate(lines, 1):
        assert f"knlp:{number}: {line.partition('=')[0]} read as CONFIG_{ROOT}" in notices
    run("extra-vars")
    variables = yaml.safe_load((tmp_path / "extra_vars.yaml").read_text())
    expected = {
        "": True,
        "work_root": "./w",
        "vllm_version": "0.23.0",
        "python": "3.12",
        "lmcache_from_git": True,
        "lmcache_ref": "dev",
        "num_prompts": 20,
        "drop_percent": 60,
        "gpu_memory_percent": 35,
        "l1_size_gb": 4,
        "cuda_visible_devices": "1",
    }
    for name, value in expected.items():
        assert variables[f"{ROOT}_{name}".lower().rstrip("_")] == value


def test_unknown_profile_names_those_there_are(run, tmp_path):
    with pytest.raises(OptionError) as caught:
        run("defconfig", "none")
    assert "lmcache-snapkv-cpu" in caught.value.remedy


def test_menuconfig_without_a_terminal_says_what_else_to_do(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115, PTH123
    with pytest.raises(OptionError, match="terminal") as caught:
        run("menuconfig")
    assert "olddefconfig" in caught.value.remedy


def test_read_twice_as_kdevops_does(kconfig, tmp_path, monkeypatch, checkout):
    """kdevops sources a plugin's Kconfig twice, from elsewhere; no symbol may change by that."""
    import kconfiglib

    place = checkout / "workflows"
    sourced = "".join(f'source "{place}/{name.replace("-", "_")}/Kconfig"\n' for name in WORKFLOWS)
    (tmp_path / "Kconfig").write_text(f"kvseal-workflows := {place}\n{sourced}{sourced}")
    monkeypatch.setenv("srctree", str(tmp_path))
    twice = kconfiglib.Kconfig("Kconfig", warn_to_stderr=False)
    once = kconfig.load()
    for workflow in WORKFLOWS.values():
        for kconf in (once, twice):
            kconf.syms[workflow.root].set_value("y")
    values = {symbol.name: symbol.str_value for symbol in twice.unique_defined_syms}
    assert values == {symbol.name: symbol.str_value for symbol in once.unique_defined_syms}
    assert len(values) == sum(len(workflow.options) for workflow in WORKFLOWS.values())
