"""Which modules of studies a command imports."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules_after(code: str, folder: Path) -> set[str]:
    """The modules of studies, and torch, that are imported once this has run."""
    watched = "sorted(name for name in sys.modules if name.startswith('fca.studies') or name == 'torch')"
    script = f"import sys\n{code}\nprint('IMPORTED', *{watched})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return set(re.findall(r"^IMPORTED(.*)$", done.stdout, re.MULTILINE)[-1].split())


def command(*words: str) -> str:
    return f"sys.argv = ['fca', *{list(words)!r}]\nfrom fca.cli.main import _run\nassert _run(sys.argv[1:]) == 0"
