"""A store may come from a stranger: what it holds is shown, and commands no terminal."""

import json

import pytest

from fca.cli import analyse, results, show, status
from fca.store import Store
from tests.support.lab import Lab

COMMAND = "\x1b]0;title\x07\x1b[2J\u009b31m"
SHOWN = r"\x1b]0;title\x07\x1b[2J\x9b31m"


@pytest.fixture
def store(tmp_path):
    """Trainings of a model whose name commands a terminal, and a failure whose record does."""
    store = Store(tmp_path / "outputs")
    lab = Lab(store)
    for subset in dict.fromkeys(lab.subsets(ncl=(2, 3))):
        lab.train(f"net{COMMAND}", subset, 0.7, recipe_augment="none")
    store.fail("00000000000f", {"run_id": "00000000000f", "task": "train", "error": COMMAND, "command": COMMAND})
    return store


def test_no_command_sends_what_a_row_or_record_holds_to_the_terminal(fca, store, capsys):
    outputs = str(store.outputs)
    run_id = store.rows()["run_id"].iloc[0]
    shown = {
        "results": fca("--outputs", outputs, door=results),
        "grouped": fca("--outputs", outputs, "--by", "model", door=results),
        "markdown": fca("--outputs", outputs, "--format", "markdown", door=results),
        "no such value": fca("--outputs", outputs, "model=x", door=results),
        "show": fca(run_id, "--outputs", outputs, door=show),
        "show a failure": fca("00000000000f", "--outputs", outputs, door=show),
        "status": fca("--outputs", outputs, door=status),
        "analyse": fca("analysis=few_class", f"outputs={outputs}", door=analyse),
    }
    for name, (code, out, err) in shown.items():
        assert code == 0, (name, err)
        assert SHOWN in out + err, name
        assert not any(sign in out + err for sign in "\x1b\x07\u009b"), name


def test_a_csv_has_names_as_they_are(fca, store):
    code, out, _ = fca("--outputs", str(store.outputs), "--format", "json", "--columns", "model", door=results)
    assert code == 0
    assert {json.loads(line)["model"] for line in out.splitlines() if line.strip()} >= {f"net{COMMAND}"}
