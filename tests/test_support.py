"""What several tests share lies in tests/support or a conftest: no test imports another test."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def imported_modules(file: Path) -> list[tuple[int, str]]:
    """Line and name of every module of tests/ that a file imports from."""
    modules = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "tests":
            names = [imported.name for imported in node.names]
            modules += [(node.lineno, f"tests.{name}") for name in names if (TESTS / f"{name}.py").exists()]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            modules.append((node.lineno, str(node.module)))
    return modules


def test_no_test_imports_another():
    wrong = [
        f"{file.relative_to(TESTS)}:{line} imports {module}"
        for file in sorted(TESTS.rglob("*.py"))
        for line, module in imported_modules(file)
        if not module.startswith("tests.support") and module.rpartition(".")[2] != "conftest"
    ]
    assert not wrong, "\n".join(wrong)
