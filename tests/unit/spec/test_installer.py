# SPDX-License-Identifier: Apache-2.0
"""uv is told what pip knows, and nothing that the user has told uv already."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvseal.errors import PrerequisiteError
from kvseal.spec import installer


@pytest.fixture(scope="module")
def python():
    """A Python whose pip can be asked: this one, or the one it was made from."""
    for path in (sys.executable, getattr(sys, "_base_executable", sys.executable)):
        version = [path, "-m", "pip", "--version"]
        if subprocess.run(version, capture_output=True, check=False).returncode == 0:
            return path
    raise AssertionError("no pip beside this Python")


LISTING = r"""
:env:.cert='/env/ca.pem'
:env:.disable-pip-version-check='1'
freeze.all='yes'
global.cert='/global/ca.pem'
global.constraint='/etc/c.txt'
global.extra-index-url='\nhttps://a.example/simple\nhttps://b.example/simple'
global.index-url='https://global.example/simple'
install.index-url='https://user:secret@install.example/simple'
"""


def test_later_sections_are_stronger():
    pip = installer.parse_pip_config(LISTING)
    assert pip["cert"] == "/env/ca.pem"
    assert pip["index-url"] == "https://user:secret@install.example/simple"
    assert "all" not in pip


def test_what_pip_uses_is_told_to_uv():
    pip = {
        **installer.parse_pip_config(LISTING),
        "find-links": "/wheels https://links.example/",
        "trusted-host": "a.example",
        "default-timeout": "99",
        "proxy": "http://proxy.example:3128",
    }
    settings = installer.translate(pip, {}, locked=False)
    assert settings.variables == {
        "UV_DEFAULT_INDEX": "https://user:secret@install.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,https://links.example/",
        "UV_INSECURE_HOST": "a.example",
        "UV_HTTP_TIMEOUT": "99",
        "UV_CONSTRAINT": "/etc/c.txt",
        "SSL_CERT_FILE": "/env/ca.pem",
        "ALL_PROXY": "http://proxy.example:3128",
    }
    assert "secret" not in settings.summary and "install.example" in settings.summary


def test_locked_pins_win_over_constraints_and_the_line_says_so():
    settings = installer.translate({"constraint": "/etc/c.txt"}, {}, locked=True)
    assert settings.variables == {"UV_CONSTRAINT": ""}
    assert "'/etc/c.txt': hash-locked pins win" in settings.summary
    assert installer.translate({}, {"UV_CONSTRAINT": "x"}, locked=True).variables == {
        "UV_CONSTRAINT": ""
    }
    assert installer.translate({}, {}, locked=True).variables == {}


def test_what_the_user_told_uv_stays():
    pip = {"index-url": "https://pip.example/simple"}
    settings = installer.translate(pip, {"UV_DEFAULT_INDEX": "https://uv.example"}, locked=True)
    assert settings.variables == {}
    assert "UV_DEFAULT_INDEX" in settings.summary


def test_no_index_means_no_network():
    pip = {"no-index": "true", "index-url": "https://a.example", "find-links": "/wheels"}
    settings = installer.translate(pip, {}, locked=True)
    assert settings.variables == {"UV_OFFLINE": "1", "UV_FIND_LINKS": "/wheels"}


def test_settings_that_a_lock_decides_are_named():
    assert "not no-binary" in installer.translate({"no-binary": ":all:"}, {}, locked=True).summary


def test_pip_itself_is_asked(python, tmp_path, monkeypatch):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nfind-links =\n    /one\n    /two words\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    pip = installer.read_pip_config(python)
    assert installer.translate(pip, {}, locked=True).variables["UV_FIND_LINKS"].startswith("/one,")


def test_broken_pip_configuration_is_an_error(python, tmp_path, monkeypatch):
    config = tmp_path / "pip.conf"
    config.write_text("[global\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    with pytest.raises(PrerequisiteError, match="pip can't be asked"):
        installer.read_pip_config(python)


def test_python_without_pip_is_an_error(tmp_path):
    with pytest.raises(PrerequisiteError):
        installer.read_pip_config(str(tmp_path / "none"))


def test_print_env(python, tmp_path, monkeypatch, capsys):
    config = tmp_path / "pip.conf"
    config.write_text("[install]\ntrusted-host = x.example\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("UV_INSECURE_HOST", raising=False)
    assert installer.main(["print-env", "--locked", "--python", python]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["UV_INSECURE_HOST"] == "x.example"
    assert printed.err.startswith("uv uses from pip:")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"KVSEAL_CACHE": "/k", "XDG_CACHE_HOME": "/x"}, "/k"),
        ({"KVSEAL_CACHE": "", "XDG_CACHE_HOME": "/x"}, "/x/kvseal"),
        ({}, str(Path.home() / ".cache/kvseal")),
    ],
)
def test_cache_folder(environment, expected):
    assert str(installer.cache_folder(environment)) == expected
