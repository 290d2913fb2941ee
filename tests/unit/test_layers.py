# SPDX-License-Identifier: Apache-2.0
"""The layers of src/kvseal: imports go down only, and importing costs nothing.

Read from the source text, so an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvseal

PACKAGE = Path(kvseal.__file__).parent

LAYERS = {
    "errors": 0,
    "verdict": 0,
    "canonical": 0,
    "identity": 1,
    "spec": 1,
    "records": 1,
    "compaction": 2,
    "layouts": 2,
    "workload": 2,
    "checkers": 2,
    "process": 3,
    "store": 3,
    "host": 3,
    "models": 3,
    "engines": 4,
    "backends": 4,
    "faults": 4,
    "codemods": 4,
    "audit": 5,
    "drivers": 5,
    "report": 5,
    "cli": 6,
    "__main__": 7,
}
APART = {"engines", "backends", "faults", "codemods"}
"""One door each to the outside; none goes through another."""

HEAVY = ("torch", "vllm", "lmcache", "transformers", "requests")
LARGEST_MODULE_LINES = 400

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """Return the top-level part of kvseal that `module` belongs to, or "" for kvseal itself."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each kvseal module that `path` imports, with the line."""
    package = name_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "kvseal":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
            if base == "kvseal":
                for alias in node.names:
                    yield f"kvseal.{alias.name}", node.lineno
            elif base.startswith("kvseal."):
                yield base, node.lineno


def violations(importer: str, imported: str) -> Iterator[str]:
    """Yield what is wrong with part `importer` importing part `imported`."""
    if importer == imported or imported in ("", "__version__"):
        return
    if imported not in LAYERS:
        yield f"{imported} has no layer"
    elif LAYERS[imported] > LAYERS[importer]:
        yield f"{importer} (layer {LAYERS[importer]}) imports {imported} (layer {LAYERS[imported]})"
    if importer in APART and imported in APART:
        yield f"{importer} and {imported} may not import each other"
    if importer == "report" and imported in APART | {"drivers"}:
        yield f"report reads run folders and may not import {imported}"
    if importer == "drivers" and imported == "report":
        yield "drivers write history; a report is made from the folder"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    importer = part_of(name_of(path))
    if importer == "":
        assert not list(imports(path)), "kvseal/__init__.py imports nothing of kvseal"
        return
    assert importer in LAYERS, f"{importer} has no layer: name it in this test and in design.md"
    wrong = [
        f"line {line}: {text}"
        for imported, line in imports(path)
        for text in violations(importer, part_of(imported))
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("canonical", "store"),
        ("records", "process"),
        ("checkers", "engines"),
        ("host", "drivers"),
        ("engines", "codemods"),
        ("codemods", "faults"),
        ("report", "engines"),
        ("report", "drivers"),
        ("drivers", "report"),
        ("drivers", "cli"),
        ("process", "nowhere"),
    ],
)
def test_the_rules_refuse_what_they_must(importer: str, imported: str) -> None:
    assert list(violations(importer, imported))


def test_all_forms_of_import_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kvseal"
    (folder / "host").mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", folder)
    path = folder / "host" / "a.py"
    path.write_text(
        "import kvseal.cli\nfrom kvseal import drivers\nfrom kvseal.engines import vllm\n"
        "from ..report import page\nfrom . import b\nfrom .. import store\nimport json\n"
        "def f():\n    from kvseal.codemods import x\n"
    )
    assert [name for name, _ in imports(path)] == [
        "kvseal.cli",
        "kvseal.drivers",
        "kvseal.engines",
        "kvseal.report",
        "kvseal.host",
        "kvseal.store",
        "kvseal.codemods",
    ]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert ast.get_docstring(ast.parse(text)), "a module says what it is and who calls it"
    assert text.count("\n") <= LARGEST_MODULE_LINES
    for word in ("TODO", "FIXME", "XXX"):
        assert word not in text


def run_python(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{text}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def test_import_kvseal_loads_nothing_else() -> None:
    loaded = run_python(
        "before = set(sys.modules); import kvseal; print(sorted(set(sys.modules) - before))"
    )
    assert loaded.strip() == "['kvseal']"


@pytest.mark.parametrize(
    "module",
    [
        name_of(path)
        for path in MODULES
        if part_of(name_of(path))
        in {
            "cli",
            "__main__",
            "process",
            "store",
            "host",
            "spec",
            "errors",
            "verdict",
            "canonical",
            "identity",
            "records",
        }
    ],
)
def test_the_light_parts_load_no_engine_and_no_torch(module: str) -> None:
    text = f"import {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    assert run_python(text).split() == []


@pytest.mark.parametrize(
    "module",
    [
        "kvseal.cli.doctor",
        "kvseal.host.facts",
        "kvseal.process",
        "kvseal.process.supervisor",
        "kvseal.store",
    ],
)
def test_these_need_the_standard_library_alone(module: str) -> None:
    text = (
        f"import {module}\n"
        "outside = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(*sorted(outside - {'kvseal', '__main__'}))"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{text}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == []
