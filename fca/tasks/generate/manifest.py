"""manifest.csv: one line an image that was asked for, from the journal; `dataset=generated` reads it."""

from __future__ import annotations

import pandas as pd

from fca.data.generated import MANIFEST, struck_ids
from fca.store.files import write_text
from fca.tasks.generate.folder import Folder, Line, latest

FROM_LINE = ("label", "attribute", "level", "sublevel", "index", "triplet", "seed", "prompt", "generator", "version")


def manifest(lines: list[Line], struck: set[str]) -> pd.DataFrame:
    """Columns image_id, path, mask, full_mask, label, name, split, attribute, level, sublevel, index, triplet, seed,
    prompt, generator, version, money, state (drawn or refused), reason (of a refusal), accepted (drawn, not struck).
    """
    return pd.DataFrame([_told(line, struck) for _, line in sorted(latest(lines).items())])


def write_manifest(folder: Folder, lines: list[Line]) -> None:
    """Write manifest.csv, whole."""
    write_text(folder.root / MANIFEST, manifest(lines, struck_ids(folder.root)).to_csv(index=False))


def _told(line: Line, struck: set[str]) -> dict[str, object]:
    drawn = line["kind"] == "image"
    return {
        "image_id": line["key"],
        "path": line.get("file"),
        "mask": line.get("mask"),
        "full_mask": line.get("full_mask"),
        "split": "test",
        **{name: line[name] for name in FROM_LINE},
        "money": line.get("money"),
        "state": "drawn" if drawn else "refused",
        "reason": line.get("refused"),
        "accepted": drawn and line["key"] not in struck,
    }
