"""What W&B's own reader finds in the files that offline runs leave."""

import json
import subprocess
import time
from pathlib import Path

import wandb

CORE = Path(wandb.__file__).parent / "bin" / "wandb-core"  # what `wandb leet` starts, without a second of Python


def inspect(folder: Path, *flags: str) -> str:
    """What W&B's own reader finds in one run folder."""
    (file,) = folder.glob("run-*.wandb")
    command = [CORE, "leet", "inspect", "--no-observability", "--json", *flags, "--run-file", file]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def written(folder: Path) -> dict:
    """State, config and summary. W&B's process closes a run's file some milliseconds after `finish` came back.

    On a busy machine the state was seen to be final before the summary was there: read until nothing changes.
    """
    before = None
    for _ in range(200):
        found = json.loads(inspect(folder, "--summary"))
        if found["state"] != "running" and found == before:
            return found
        before = found
        time.sleep(0.1)
    raise AssertionError(f"still running: {found}")


def folders(outputs: Path) -> dict[str, Path]:
    return {path.name.rsplit("-", 1)[1]: path for path in (outputs / "wandb").glob("offline-run-*")}
