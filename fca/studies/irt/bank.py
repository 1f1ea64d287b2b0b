"""Item banks: a saved table `irt_items`, or a file that `fca bank` wrote from one, to be shipped and cited.

A file is JSON: the items and their parameters, who they were fitted on (subjects, and the ids of their runs), how well
the fit predicts held-out responses, and how to cite it. Its identity is that of its bytes. Files come from strangers:
what is read of one is numbers and names, each checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fca.identity import file_sha256
from fca.store import State, Store
from fca.store.files import if_whole, read_object, refused_if_damaged, write_json
from fca.studies.irt.irt import IRT_ABILITIES, IRT_FITS, IRT_ITEMS, fit_name
from fca.studies.irt.stats import MODELS
from fca.types import FcaError
from fca.validation import has_type

FORMAT = 1  # of the files; another one is refused
STEP = "make one: fca analyse analysis=irt, then fca bank"
NAMES = ("dataset", "corruption", "item", "irt_model")
PARAMETERS = {  # of an item, and what they may be
    "difficulty": (-1e6, 1e6),
    "discrimination": (0.0, 1e6),
    "feasibility": (0.0, 1.0),
    "guess": (0.0, 1.0),
}


class Origin(NamedTuple):
    """Where a bank comes from: the runs that it was fitted on, and the versions of each data set, by name.

    not_estimable: scales that a fit behind it could not learn, so that the prior's stand in its items; by data set and
    corruption of the items, see `fit_name`.
    """

    runs: tuple[str, ...]
    fingerprints: Mapping[str, list[str]]
    not_estimable: Mapping[str, Sequence[str]]

    def not_estimable_of(self, items: pd.DataFrame) -> dict[str, Sequence[str]]:
        """Those of the fits that these items of the bank come from."""
        pairs = items[["dataset", "corruption"]].drop_duplicates()
        names = {fit_name(str(dataset), str(corruption)) for dataset, corruption in pairs.itertuples(index=False)}
        return {name: scales for name, scales in self.not_estimable.items() if name in names}


KINDS = {"fca_bank": int, "runs": list, "fingerprints": dict, "items": dict}  # in a file


def bank_id(bank: str) -> str:
    """What a bank is in identities: the id of its table; of a file, 12 hex digits of its content."""
    return file_sha256(bank)[:12] if _is_file(bank) else bank


def read_bank(store: Store, bank: str) -> pd.DataFrame:
    """The items of a bank: one line an item, in the columns of table `irt_items`.

    bank: the id of a saved table, or a file. Raises FcaError, listing the saved banks, for what is neither; for a file
    that is damaged or no bank; and for a table whose severities are on scales of their own.
    """
    if _is_file(bank):
        return _items_of(bank, _content(bank)["items"])
    _about(store, bank)
    with refused_if_damaged("bank", bank, "a whole table", "save it again: fca analyse"):
        return store.saved_lines(bank, IRT_ITEMS.columns)


def origin_of(store: Store, bank: str) -> Origin:
    """Where a bank comes from. Raises FcaError as `read_bank`."""
    if _is_file(bank):
        content = _content(bank)
        return Origin(tuple(content["runs"]), content["fingerprints"], content["not_estimable"])
    about = _about(store, bank)
    runs = tuple(about["runs"])
    # rows one by one: `store.rows` may write the index of all rows, and only readers may do that
    rows = [store.row(run_id) for run_id in runs if store.state(run_id) is State.DONE]
    fingerprints = defaultdict[str, set[str]](set)
    for row in rows:
        fingerprints[str(row["dataset"])].add(str(row["fingerprint"]))
    not_estimable = about["parameters"].get("not_estimable", {})
    return Origin(runs, {name: sorted(found) for name, found in sorted(fingerprints.items())}, not_estimable)


def write_bank(store: Store, table_id: str, path: Path, cite: str | None = None, licence: str | None = None) -> Path:
    """Write a saved table `irt_items` as a file, with what `fca analyse analysis=irt` saved beside it; its path.

    Raises FcaError for an id that is no bank, and where the tables beside it (subjects, held-out score) are gone.
    """
    items, about = read_bank(store, table_id), _about(store, table_id)
    beside = {spec: _beside(store, about, spec.name) for spec in (IRT_ABILITIES, IRT_FITS)}
    subjects = beside[IRT_ABILITIES][["dataset", "corruption", "subject", "model", "snapshot", "top1"]]
    origin = origin_of(store, table_id)
    kept = ("model", "calibration", "compat", "seed", "trait", "answers")
    content: dict[str, Any] = {
        "fca_bank": FORMAT,
        "cite": cite,
        "licence": licence,
        "fitted": {"fca": version("fca"), "table": table_id}
        | {name: about["parameters"].get(name) for name in kept}
        | {"fits": _lines(beside[IRT_FITS])},
        "subjects": _lines(subjects),
        "runs": list(origin.runs),
        "fingerprints": dict(origin.fingerprints),
        "items": {name: _plain(items[name]) for name in items},
    }
    if origin.not_estimable:
        content["not_estimable"] = origin.not_estimable
    write_json(path, content)
    return path


def saved_banks(store: Store) -> dict[str, dict[str, Any]]:
    """The saved tables `irt_items`: id -> what table.json has."""
    return {found: table for found, table in store.saved_tables().items() if table["name"] == IRT_ITEMS.name}


def _is_file(bank: str) -> bool:
    return Path(bank).expanduser().is_file()


def _about(store: Store, table_id: str) -> dict[str, Any]:
    """The description of a saved bank; see `read_bank` for what is refused."""
    about, banks = store.saved_tables(), saved_banks(store)
    if (store.outputs / "tables" / table_id / "table.json").exists() and table_id not in about:
        raise FcaError("bank", table_id, "a table whose table.json is whole", "save it again: fca analyse")
    if table_id not in banks:
        value = f"{table_id}, a table {about[table_id]['name']}" if table_id in about else table_id
        allowed = f"a saved table irt_items: {', '.join(banks) or 'none yet'}; or a file of fca bank"
        raise FcaError("bank", value, allowed, "make one: fca analyse analysis=irt")
    if about[table_id]["parameters"].get("calibration") == "separate":
        allowed = "one of calibration joint or ability, with one scale for all severities"
        raise FcaError("bank", f"{table_id}, of calibration separate", allowed, "fca analyse analysis=irt")
    return about[table_id]


def _beside(store: Store, about: Mapping[str, Any], name: str) -> pd.DataFrame:
    """The table of this name that the same analysis saved."""
    for table_id, other in store.saved_tables().items():
        if other["name"] == name and other["parameters"] == about["parameters"] and other["runs"] == about["runs"]:
            with if_whole():
                return store.saved_lines(table_id)
    raise FcaError(f"table {name} of this bank", "missing", "the one saved with it", "fca analyse analysis=irt again")


def _content(bank: str) -> dict[str, Any]:
    """What a file of a bank has. Raises FcaError for one that is damaged or something else."""
    with refused_if_damaged("bank", bank, "a file of fca bank", STEP):
        content = read_object(Path(bank).expanduser(), **KINDS)
    if content["fca_bank"] != FORMAT:
        raise FcaError("bank", f"{bank}, of format {content['fca_bank']}", f"format {FORMAT}", "take a newer fca")
    if not (has_type(content["runs"], list[str]) and has_type(content["fingerprints"], dict[str, list[str]])):
        raise FcaError("bank", bank, "a file of fca bank: runs and fingerprints are names", STEP)
    content.setdefault("not_estimable", {})  # written where there are some
    if not has_type(content["not_estimable"], dict[str, list[str]]):
        raise FcaError("bank", bank, "a file of fca bank: not_estimable names scales by data set", STEP)
    return content


def _items_of(bank: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    """The items of a file, checked; columns that it lacks are missing."""
    lengths = {len(values) if isinstance(values, list) else -1 for values in columns.values()}
    lacking = [name for name in (*NAMES, *PARAMETERS) if name not in columns]
    if lacking or len(lengths) != 1 or lengths <= {0, -1}:
        allowed = f"a file of fca bank: columns {', '.join((*NAMES, *PARAMETERS))}, as long as each other"
        raise FcaError("bank", bank, allowed, STEP)
    for name in (*NAMES, *PARAMETERS):
        for at, value in enumerate(columns[name]):
            if not _may_be(name, value):
                raise FcaError(f"{name} of item {at} of bank {bank}", f"{value!s:.60}", _allowed(name), STEP)
    frame = pd.DataFrame({name: columns[name] for name in map(str, IRT_ITEMS.columns) if name in columns})
    return IRT_ITEMS.frame(frame.astype(dict.fromkeys(PARAMETERS, float)))


def _may_be(name: str, value: object) -> bool:
    if name in NAMES:
        return isinstance(value, str) and (name != "irt_model" or value in MODELS)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    low, high = PARAMETERS[name]
    return low <= value <= high and (name != "discrimination" or value > 0)


def _allowed(name: str) -> str:
    if name in NAMES:
        return ", ".join(MODELS) if name == "irt_model" else "a text"
    return "a number above 0" if name == "discrimination" else "a number from {} to {}".format(*PARAMETERS[name])


def _lines(frame: pd.DataFrame) -> list[dict[str, Any]]:
    columns = {str(name): _plain(frame[name]) for name in frame}
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def _plain(column: pd.Series) -> list[Any]:
    """The values as JSON has them; null for what is missing, a list for a tuple."""
    values = [list(value) if isinstance(value, np.ndarray | tuple) else value for value in column.astype(object)]
    return [value if isinstance(value, list) or pd.notna(value) else None for value in values]
