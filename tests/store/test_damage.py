"""Whatever happens to one file of a store: nothing stops, nothing wrong is read, and the same commands repair it.

A small real store (trainings with snapshots, predictions, scores, features, a description, a failed run, caches) is
damaged in many random ways. Each time `status`, `results` and analyses must go on with what is whole, and the jobs that
made the store must make it again, to the same numbers.
"""

import json
import os
import pickle
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from fca.cli import configure, status
from fca.cli.analyse import tables_of
from fca.cli.application import composed
from fca.cli.configure import Job, component, configured, job_of
from fca.cli.execute import execute
from fca.store import State, Store, damage, index, results
from fca.store.files import DamagedFile
from fca.tables.predictions import predictions
from fca.tables.rows import readable_rows, records
from fca.types import FcaError, Run, Table

FAST, ALL = 8, 240
COMMANDS = (
    "task=train recipe.snapshots=[0.5]",
    "task=embed model@encoder=pixels",
    "task=embed model@encoder=hog",
    "task=describe",
)
CHANGES = (
    "missing", "missing", "empty", "cut", "flipped", "flipped", "silently flipped", "folder", "text", "list", "pickle",
    "longer", "swapped", "swapped", "renamed run", "number", "NaN", "foreign", "claim", "future claim", "link",
    "pipe", "device", "loop", "deep",
)  # fmt: skip

DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def make_folder(path):
    path.mkdir()
    (path / "x").write_text("x")


NO_FILES = {  # what may stand in the place of a file
    "folder": make_folder,
    "link": lambda path: path.symlink_to(path.with_name("nowhere")),
    "loop": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@dataclass(frozen=True)
class Breaks:
    """A task whose run fails."""

    columns: ClassVar = ()
    summary: ClassVar = ()

    def plan(self, context):
        return [Run("broken", {"data": context.data.fingerprint})]

    def run(self, runs, context):
        raise RuntimeError("broken")
        yield


@dataclass
class Lab:
    """The jobs, the store that they made and a copy of it, and what was read from it when it was whole."""

    jobs: list
    outputs: object
    whole: object

    def __post_init__(self):
        self.rows = results(self.outputs).drop(columns="files", errors="ignore").set_index("run_id")
        self.states = {run_id: Store(self.outputs).state(run_id) for run_id in Store(self.outputs).run_ids()}
        self.tables = {}

    def restore(self):
        shutil.rmtree(self.outputs)
        shutil.copytree(self.whole, self.outputs)  # with its times
        forget()

    def without(self, key, every):
        """What analyses find on the whole store without a run or data set; None: with all."""
        if (key, every) not in self.tables:
            left_out = () if key is None else (DamagedFile(self.whole / "runs" / key / "x", "is left out"),)
            self.tables[key, every] = analyses(Store(self.whole, left_out), every)
        return self.tables[key, every]


def forget():
    """As a new process begins."""
    damage._intact_stamps.clear()
    index._last = None


def quick(store):
    """A light analysis by the readers that all analyses use: a table for every row with arrays."""
    found = {}
    for row in records(readable_rows(store, None)):
        if row["task"] == "predict":
            of = predictions(store, row)
            found[row["run_id"]] = f"{of.right.sum()} {of.logits.sum()} {of.logit_classes}"
        elif row["task"] == "embed":
            found[row["run_id"]] = str(store.array(row["run_id"], "features").sum())
    return [Table(run_id, "?", "?", pd.DataFrame({"is": [text]}), {}, (run_id,)) for run_id, text in found.items()]


def analysis_called(name):
    return component(configured("analyse", "analysis", name, {}), "analysis")


def analyses(store, every):
    """Tables by name or run, as texts; those of analyses that find nothing are missing."""
    found = {}
    for analysis in (quick, *map(analysis_called, ("few_class", "similarity"))) if every else (quick,):
        with suppress(FcaError):
            found |= {table.name: table.frame.to_csv() for table in tables_of(analysis, store)[0]}
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    outputs = folder / "outputs"
    fixed = [
        "dataset=digits",
        "limit=3",
        "model=test_resnet",
        "recipe.epochs=1",
        "recipe.min_steps=0",
        "logger=none",
        f"outputs={outputs}",
    ]

    def job(command):
        words = [*fixed, *command.split()]
        return job_of(composed("run", words), words)

    jobs = []
    for command in COMMANDS:
        jobs.append(job(command))
        execute(jobs[-1], alone=True)
    trained = jobs[0].plan[0].run_id
    jobs.append(job(f"task=predict model=run model.run_id={trained} subset.ncl=4"))
    broken = Job(Breaks(), jobs[0].context, Breaks().plan(jobs[0].context), jobs[0].values, "fca run broken")
    jobs.append(broken)
    for one in jobs[-2:]:
        execute(one, alone=True)
    shutil.copytree(outputs, folder / "whole")
    forget()
    return Lab(jobs, outputs, folder / "whole")


def targets(outputs):
    """The files of a store that somebody reads."""
    paths = sorted(outputs.glob("runs/*/*"))
    runs = [path for path in paths if damage.is_listed(path.name) or path.stem in ("row", "error")]
    return runs, sorted([*outputs.glob("items/*"), *outputs.glob("cache/*.npy"), *outputs.glob("cache/*.json")])


def break_one(outputs, seed):
    """Change one file; returns its path, and whether what was in it is gone."""
    rng = np.random.default_rng([seed, 7])
    change = CHANGES[seed % len(CHANGES)]
    runs, shared = targets(outputs)
    rows = [path for path in runs if path.suffix == ".json" and path.stem in ("row", "error")]
    if change in ("foreign", "claim", "future claim"):
        return litter(outputs, rng, change), False
    pool = rows if change in ("renamed run", "number", "NaN", "list") else runs if rng.random() < 0.8 else shared
    if change == "silently flipped":
        pool = [path for path in runs if path.name in ("features.npy", "pred.npy", "logits.npy")]
    path = pool[rng.integers(len(pool))]
    before, stat = path.read_bytes(), path.stat()
    others = [other for other in (*runs, *shared) if other.suffix == path.suffix and other != path]
    same = [other for other in others if other.name == path.name] or others or runs
    content = {
        "empty": lambda: b"",
        "cut": lambda: before[: rng.integers(1, len(before))],
        "text": lambda: b"nonsense\n",
        "list": lambda: b"[1, 2]",
        "pickle": lambda: pickle.dumps({"a": [1]}),
        "longer": lambda: before + b"\0more",
        "swapped": lambda: same[rng.integers(len(same))].read_bytes(),
        "flipped": lambda: flipped(before, rng),
        "silently flipped": lambda: flipped(before, rng),
        "renamed run": lambda: before.replace(path.parent.name.encode(), b"0123456789ab"),
        "number": lambda: json.dumps({**json.loads(before), "task": 3, "dataset": 5, "error": 1}).encode(),
        "deep": lambda: DEEP,
        "NaN": lambda: before.replace(b'"task"', b'"top1": NaN, "task"'),
    }
    path.unlink()
    if change in NO_FILES:
        NO_FILES[change](path)
    elif change != "missing":
        path.write_bytes(content[change]())
        if change == "silently flipped":
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return path, not path.is_file() or path.read_bytes() != before


def flipped(content, rng):
    changed = bytearray(content)
    for place in rng.integers(len(content), size=3):
        changed[place] ^= int(rng.integers(1, 256))
    return bytes(changed)


def litter(outputs, rng, change):
    """Something that nobody of ours wrote, or a claim that cannot be."""
    folders = [outputs / "runs", outputs / "items", outputs / "cache", outputs / "tables", *outputs.glob("runs/*")]
    if change == "foreign":
        folder = folders[rng.integers(len(folders))]
        folder.mkdir(exist_ok=True)
        (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (outputs / "runs" / "backup").mkdir()
        (outputs / "runs" / "backup" / "row.json").write_text("{}")
        return folder / ".DS_Store"
    claim = {"token": "t", "host": os.uname().nodename, "pid": os.getpid(), "process_started": 1.0, "started": 1.0}
    odd = (json.dumps({**claim, **values}) for values in ({"pid": "1"}, {"host": None}, {"pid": -5}))
    texts = ["", "{", "[]", "null", "7", "{}", *odd]
    text = texts[rng.integers(len(texts))]
    if change == "future claim":
        text = json.dumps({**claim, "host": "elsewhere", "started": time.time() + 1e6})
    run = sorted(outputs.glob("runs/*/row.json"))[rng.integers(7)].parent
    (run / "row.json").unlink()  # a run that somebody claims to be at
    (run / "claim.json").write_text(text)
    return run / "claim.json"


@pytest.mark.wide
@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n >= FAST else []) for n in range(ALL)])
def test_one_bad_file_stops_nothing_and_the_same_commands_repair_it(lab, seed, capsys):
    lab.restore()
    path, gone = break_one(lab.outputs, seed)
    key, room = path.parent.name if path.parent.parent.name == "runs" else path.stem, path.parent.name
    counted = gone and room != "cache" and not (path.stem in ("row", "error") and not os.path.lexists(path))
    store, every = Store(lab.outputs), seed >= FAST and seed % 8 == 0

    found, allowed = analyses(store, every), (lab.without(None, every), lab.without(key, every))
    assert set(allowed[1]) <= set(found) <= set(allowed[0]), path
    assert all(any(of.get(name) == table for of in allowed) for name, table in found.items()), path
    rows = results(lab.outputs).set_index("run_id")
    lost = set(lab.rows.index) - set(rows.index)
    assert lost <= {key}
    rows = rows.reindex(columns=lab.rows.columns)  # without those that only the lost row had
    pd.testing.assert_frame_equal(rows, lab.rows.drop(index=list(lost)), check_dtype=False)
    assert status.main(["--outputs", str(lab.outputs)]) == 0
    out = capsys.readouterr().out
    assert (", 1 damaged (" in out) == counted, out
    assert (str(path) in out) == counted, out
    states = {run_id: store.state(run_id) for run_id in store.run_ids()}
    assert {run_id for run_id, state in states.items() if state is not lab.states[run_id]} <= {key}
    assert State.RUNNING not in states.values()

    if room == "cache":  # nobody reads it until a run needs it
        shutil.rmtree(store.folder(lab.jobs[1].plan[0].run_id))
        shutil.rmtree(store.folder(lab.jobs[0].plan[1].run_id))
    for job in lab.jobs:
        execute(job, alone=True)
    assert_whole(lab)
    assert status.main(["--outputs", str(lab.outputs)]) == 0
    assert "damaged" not in capsys.readouterr().out


BOMB = "\n".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 99 if n else ['x'])}]" for n in range(9))
ANYTHING = {**NO_FILES, "deep": lambda path: path.write_bytes(DEEP), "bomb": lambda path: path.write_text(BOMB)}


@pytest.mark.parametrize(
    "change", [pytest.param(name, marks=[] if name == "pipe" else pytest.mark.slow) for name in ANYTHING]
)
def test_what_is_no_file_and_has_no_end_hangs_nothing(lab, change, capsys):
    """In place of every file of a run at once, and of every file that runs share."""
    lab.restore()
    run_id = lab.jobs[0].plan[0].run_id
    run, store = Store(lab.outputs).folder(run_id), Store(lab.outputs)
    files = [*run.iterdir(), *(run / name for name in ("claim.json", "error.json", "damaged.json", "last.ckpt"))]
    files += [
        run / "journal.jsonl",
        lab.outputs / index.INDEX,
        *lab.outputs.glob("items/*"),
        *lab.outputs.glob("cache/*"),
    ]
    files += list(lab.outputs.glob("runs/*/config.yaml"))
    for path in dict.fromkeys(files):
        path.unlink(missing_ok=True)
        ANYTHING[change](path)
    signal.alarm(300)  # a reader of a pipe waits for ever
    found = analyses(store, every=change != "pipe")
    assert set(found) <= set(lab.without(None, every=change != "pipe"))
    assert set(results(lab.outputs)["run_id"]) == set(lab.rows.index) - {run_id}
    assert status.main(["--outputs", str(lab.outputs)]) == 0
    assert f"{run_id}" in capsys.readouterr().out
    [fingerprint] = set(lab.rows["fingerprint"].dropna())
    assert configure.store_with_images(lab.outputs).images(fingerprint) is None
    for job in lab.jobs:
        execute(job, alone=True)
    signal.alarm(0)
    assert_whole(lab)


def assert_whole(lab):
    """The store holds what it held: states, rows, and the bytes of every array and weights file."""
    forget()
    store = Store(lab.outputs)
    assert {run_id: store.state(run_id) for run_id in store.run_ids()} == lab.states
    took = [name for name in lab.rows if name.endswith("_s")] + ["finished", "command"]
    rows = results(lab.outputs).set_index("run_id").loc[lab.rows.index]
    pd.testing.assert_frame_equal(rows[list(lab.rows)].drop(columns=took), lab.rows.drop(columns=took))
    for path in lab.whole.glob("runs/*/*"):
        if path.suffix in (".npy", ".safetensors"):
            assert (lab.outputs / path.relative_to(lab.whole)).read_bytes() == path.read_bytes(), path
    for path in lab.whole.glob("items/*"):
        pd.testing.assert_frame_equal(store.items(path.stem), Store(lab.whole).items(path.stem))
    assert not [*lab.outputs.glob("runs/*/claim.json"), *lab.outputs.glob("runs/*/damaged.json")]
