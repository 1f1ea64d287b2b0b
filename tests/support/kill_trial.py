"""Sweeps that are killed at random moments: what is lost, done twice, torn or left behind.

    python -m tests.support.kill_trial kills=20 launcher=joblib target=worker

launcher: basic or joblib.    target: parent (the sweep itself) or worker (under basic: W&B's process, its only child).
kills:    in all; the same command is given again after each, and a sweep that is done makes room for a new one.
seconds:  kills come so long after the sweep has printed its plan, at most; every fourth comes while it still starts.
"""

import json
import os
import random
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

GRID = [
    "-m",
    "model=test_resnet",
    "subset.ncl=2,3",
    "subset.seed=0,1",
    "limit=20",
    "recipe.epochs=5",
    "recipe.min_steps=0",
    "sweep.retry=true",
]
JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
RUNS = 8  # of that grid
END_S = 5.0  # within which nothing of a killed sweep is alive or left


@dataclass
class Trial:
    """What went wrong, one line each; `gone_s` is how long the children of killed sweeps lived at most."""

    kills: int = 0
    sweeps: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    failed: int = 0
    gone_s: float = 0.0

    @property
    def wrong(self) -> list[str]:
        return [*self.lost, *self.twice, *self.torn, *self.left, *self.stuck]


@dataclass
class Sweep:
    """One folder, the command that fills it, and what was seen finished there."""

    folder: Path
    words: list[str]
    seen: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def start(self) -> psutil.Popen:
        self.folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "fca.cli.main", "run", *self.words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.folder / "out.txt").open("ab") as out:
            return psutil.Popen(command, cwd=self.folder, env=environment, stdout=out, stderr=out)

    def plans(self) -> int:
        """How often it was started and printed its plan."""
        out = self.folder / "out.txt"
        return out.read_text().count(" to run") if out.exists() else 0

    def check(self, trial: Trial) -> int:
        """Compare what is finished with what was; returns the number of rows."""
        rows = sorted(self.folder.glob("outputs/runs/*/row.json"))
        for row in rows:
            try:
                assert json.loads(row.read_text())["run_id"] == row.parent.name
                for array in row.parent.glob("*.npy"):
                    np.load(array)
            except (AssertionError, ValueError, OSError) as error:
                trial.torn.append(f"{row}: {error}")
        now = {path: stamp(path) for row in rows for path in row.parent.iterdir() if path.suffix in (".json", ".npy")}
        now = {path: seen for path, seen in now.items() if path.name != "claim.json"}
        trial.lost += [str(path) for path in self.seen if path not in now]
        trial.twice += [str(path) for path, was in self.seen.items() if now.get(path, was) != was]
        self.seen = now
        return len(rows)

    def remains(self) -> list[str]:
        """Claims and half-written files."""
        found = [path for name in ("*.part", "*claim*") for path in (self.folder / "outputs").rglob(name)]
        return [str(path) for path in found if "wandb" not in path.parts]


def stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def is_worker(process: psutil.Process, launcher: str) -> bool:
    with suppress(psutil.Error):
        return ("popen_loky" if launcher == "joblib" else "wandb-core") in " ".join(process.cmdline())
    return False


def strike(sweep: Sweep, launcher: str, target: str, seconds: float, rng: random.Random, trial: Trial) -> None:
    """Start the sweep, kill its target at a random moment, and look at what is left."""
    planned, moment = rng.random() > 0.25, rng.uniform(0, seconds)
    plans, process, killed = sweep.plans(), sweep.start(), False
    while process.poll() is None and planned and sweep.plans() == plans:
        time.sleep(0.01)
    begun = time.monotonic()
    while process.poll() is None and not killed:
        time.sleep(0.01)
        if time.monotonic() - begun < moment:
            continue
        family = children(process)
        victims = [process] if target == "parent" else [child for child in family if is_worker(child, launcher)]
        if victims:
            with suppress(psutil.NoSuchProcess):
                rng.choice(victims).kill()
                killed = True
    trial.kills += killed
    if killed and target == "parent":
        process.wait()
        died = time.monotonic()
        _, alive = psutil.wait_procs(family, timeout=2 * END_S)
        trial.gone_s = max(trial.gone_s, time.monotonic() - died) if family else trial.gone_s
        trial.left += [f"{child} is alive" for child in alive]
        if launcher == "joblib":
            trial.left += sweep.remains()
    else:
        finish(process, sweep, trial, codes=(0, 1))
    if sweep.check(trial) == RUNS:
        trial.sweeps += 1


def finish(process: psutil.Popen, sweep: Sweep, trial: Trial, codes: tuple[int, ...] = (0,)) -> None:
    """Wait for the end of a sweep that nobody stops."""
    family = children(process)
    try:
        code = process.wait(timeout=300)
    except psutil.TimeoutExpired:
        process.kill()
        trial.stuck.append(f"{sweep.folder}: not done after 300 s")
        return
    psutil.wait_procs(family, timeout=END_S)
    if code not in codes:
        trial.stuck.append(f"{sweep.folder}: exit code {code}; see {sweep.folder / 'out.txt'}")
    trial.failed += len(list(sweep.folder.glob("outputs/runs/*/error.json")))
    trial.left += sweep.remains()


def trial(folder: Path, kills: int, launcher: str, target: str, seconds: float, seed: int = 0) -> Trial:
    """Kill so many sweeps; each is then completed by the same command."""
    done, rng = Trial(), random.Random(seed)
    logger = "logger=wandb" if (launcher, target) == ("basic", "worker") else "logger=none"
    words = [*GRID, logger, *(JOBLIB if launcher == "joblib" else [])]
    number = 0
    while done.kills < kills:
        sweep = Sweep(folder / str(number), words)
        number, before = number + 1, done.sweeps
        while done.kills < kills and done.sweeps == before:
            strike(sweep, launcher, target, seconds, rng, done)
        if done.sweeps == before:
            finish(sweep.start(), sweep, done)
            if sweep.check(done) < RUNS:
                done.stuck.append(f"{sweep.folder}: not completed by the same command")
            done.sweeps += 1
    return done


def main() -> None:
    given = dict(word.split("=") for word in sys.argv[1:])
    kills, seconds, seed = int(given.get("kills", 20)), float(given.get("seconds", 20)), int(given.get("seed", 0))
    launcher, target = given.get("launcher", "basic"), given.get("target", "parent")
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    found = trial(folder, kills, launcher, target, seconds, seed)
    counts = {name: len(getattr(found, name)) for name in ("lost", "twice", "torn", "left", "stuck")}
    print(
        f"{launcher} {target}: {found.kills} kills, {found.sweeps} sweeps completed, {found.failed} failed runs",
        end=", ",
    )
    print(
        ", ".join(f"{count} {name}" for name, count in counts.items()),
        f"children gone after {found.gone_s:.1f} s",
        sep=", ",
    )
    print("\n".join(found.wrong) or f"nothing wrong in {folder}")
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
