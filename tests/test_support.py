"""What tests share is in a folder `support` or a conftest: no test imports another, nor does a script of a test.

All that is of a study, tests and support, lies in tests/studies/NAME and is removed with it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def imported_modules(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every module of tests/ that a source imports, or imports from.

    package: of the source, to which relative imports refer.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [imported.name for imported in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = _origins(node, package)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "from tests." in node.value:
            modules = _of_script(node.value)
        else:
            continue

        yield from ((node.lineno, module) for module in modules if module.startswith("tests."))


def _origins(node: ast.ImportFrom, package: str) -> list[str]:
    """The modules behind `from x import y`: x, or x.y where y is a module or package itself."""
    origin = node.module or ""
    if node.level:  # the first dot is the package itself, each other one goes up
        parents = package.split(".")
        origin = ".".join(parents[: len(parents) + 1 - node.level] + ([origin] if origin else []))

    if origin.partition(".")[0] != "tests":
        return [origin]

    modules = []
    for imported in node.names:
        place = TESTS.parent.joinpath(*origin.split("."), imported.name)
        is_module = place.with_suffix(".py").exists() or place.is_dir()
        modules.append(f"{origin}.{imported.name}" if is_module else origin)
    return modules


def _of_script(text: str) -> list[str]:
    """The modules of tests/ that a script imports which a test writes: it may be a template, so it is not parsed."""
    lines = [line.split() for line in text.splitlines()]
    return [words[1] for words in lines if words[:1] in (["from"], ["import"]) and len(words) > 1]


def is_shared(module: str) -> bool:
    """Whether tests may import it: tests/support or that of a study, or a conftest."""
    return re.match(r"tests\.(studies\.\w+\.)?support\b", module) is not None or module.endswith(".conftest")


ALLOWED = {("adaptive", "irt"), ("adaptive", "progressive"), ("psychometrics", "irt"), ("search", "generate")}


def study_of(file: Path) -> str | None:
    """The study whose test this file is."""
    inside = file.relative_to(TESTS).parts
    return inside[1] if inside[0] == "studies" and len(inside) > 2 else None


def studies_in(source: str) -> set[str]:
    """The studies of which a source imports code or tests."""
    tree = ast.parse(source)
    modules = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{name.name}" for name in node.names}
    parts = [module.split(".") for module in modules]
    return {part[2] for part in parts if part[:2] in (["fca", "studies"], ["tests", "studies"]) and len(part) > 2}


@pytest.mark.wide
def test_only_tests_of_a_study_import_it():
    wrong = []
    for file in sorted(TESTS.rglob("*.py")):
        own = study_of(file)
        others = {study for study in studies_in(file.read_text(encoding="utf-8")) if study != own}
        wrong += [f"{file.relative_to(TESTS)} imports {other}" for other in others if (own, other) not in ALLOWED]
    assert not wrong, "\n".join(wrong)


def test_imports_of_studies_are_seen():
    source = "from fca.studies import irt\nimport fca.studies.search.task\nfrom tests.studies.adaptive.support import x"
    assert studies_in(source) == {"irt", "search", "adaptive"}


@pytest.mark.wide
def test_no_test_imports_another():
    wrong = []
    files = set(TESTS.rglob("*.py")) - {Path(__file__)}  # whose examples are imports that are wrong
    for file in sorted(files):
        package = ".".join(file.relative_to(TESTS.parent).parent.parts)
        imports = imported_modules(file.read_text(encoding="utf-8"), package)
        wrong += [
            f"{file.relative_to(TESTS.parent)}:{line} imports {name}" for line, name in imports if not is_shared(name)
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "from tests.report.test_terms import of_two",
        "from tests.report import test_terms",
        "import tests.report.test_terms",
        "from .test_terms import of_two",
        "from . import test_terms",
        "from ..report.test_terms import of_two",
        "def late():\n    from tests.report.test_terms import of_two",
        "SCRIPT = 'import fca\\nfrom tests.report.test_terms import of_two'",
    ],
)
def test_every_way_to_import_another_test_is_seen(source):
    assert {name for _, name in imported_modules(source, "tests.report")} == {"tests.report.test_terms"}


@pytest.mark.parametrize(
    "source",
    ["from tests.conftest import SMALL", "from tests.support import columns", "from tests import calls", "import fca"],
)
def test_what_is_shared_may_be_imported(source):
    assert all(is_shared(name) for _, name in imported_modules(source, "tests.report"))
