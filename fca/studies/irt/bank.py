"""Item banks: a saved table `irt_items`, or a file that `fca bank` wrote from one, to be shipped and cited.

A file is JSON: the items and their parameters, the subjects that they were fitted on with the ids of their runs, how
well the fit predicts held-out responses, and how to cite it. Its identity is that of its bytes. Files come from
strangers: only numbers and names are read from them, and each is checked.
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
NEXT_STEP = "make one: fca analyse analysis=irt, then fca bank"
TEXT_COLUMNS = ("dataset", "corruption", "item", "irt_model")
PARAMETER_RANGES = {  # of an item, with the allowed ranges
    "difficulty": (-1e6, 1e6),
    "discrimination": (0.0, 1e6),
    "feasibility": (0.0, 1.0),
    "guess": (0.0, 1.0),
}


class Origin(NamedTuple):
    """Origin of a bank: the runs that it was fitted on, and the versions of each data set, by name.

    not_estimable: scales that a fit behind it could not estimate, so that its items lean on the prior; by data set and
    corruption of the items, see `fit_name`.
    """

    runs: tuple[str, ...]
    fingerprints: Mapping[str, list[str]]
    not_estimable: Mapping[str, Sequence[str]]

    def not_estimable_of(self, items: pd.DataFrame) -> dict[str, Sequence[str]]:
        """`not_estimable` for the fits that these items come from alone.

        items: some items of the bank, with the columns dataset and corruption.
        """
        pairs = items[["dataset", "corruption"]].drop_duplicates()
        names = {fit_name(str(dataset), str(corruption)) for dataset, corruption in pairs.itertuples(index=False)}
        return {name: scales for name, scales in self.not_estimable.items() if name in names}


ENTRY_TYPES = {"fca_bank": int, "runs": list, "fingerprints": dict, "items": dict}  # in a file


def bank_id(bank: str) -> str:
    """Identity of a bank: the id of its table; for a file, 12 hex digits of its content."""
    return file_sha256(bank)[:12] if _is_file(bank) else bank


def read_bank(store: Store, bank: str) -> pd.DataFrame:
    """The items of a bank: one line per item, in the columns of table `irt_items`.

    bank: the id of a saved table, or the path of a file. Raises FcaError for what is neither (with a list of the saved
    banks), for a file that is damaged or no bank, and for a table whose severities are on separate scales.
    """
    if _is_file(bank):
        return _items_of_file(bank, _content_of_file(bank)["items"])

    _description_of_table(store, bank)  # checks the id
    with refused_if_damaged("bank", bank, "a whole table", "save it again: fca analyse"):
        return store.saved_lines(bank, IRT_ITEMS.columns)


def origin_of(store: Store, bank: str) -> Origin:
    """The runs and versions of data sets that a bank was fitted on, and the spreads that its fits could not estimate.

    A fit estimates the spreads of ability and of difficulty. A spread that its responses do not determine cannot be
    estimated; the fit takes it from the prior.

    bank: the id of a saved table, or the path of a file. Raises FcaError as `read_bank` does. The versions of data sets
    are read from the stored runs, so a run that is no longer stored adds none.
    """
    if _is_file(bank):
        content = _content_of_file(bank)
        return Origin(tuple(content["runs"]), content["fingerprints"], content["not_estimable"])

    description = _description_of_table(store, bank)
    runs = tuple(description["runs"])
    # rows are read one by one, because `store.rows` may write the index of all rows. Runs of adaptive tests call this
    # function to check their bank; many of them may run at once, so they must not write that index
    rows = [store.row(run_id) for run_id in runs if store.state(run_id) is State.DONE]
    fingerprints_by_dataset = defaultdict[str, set[str]](set)
    for row in rows:
        fingerprints_by_dataset[str(row["dataset"])].add(str(row["fingerprint"]))

    return Origin(
        runs=runs,
        fingerprints={name: sorted(versions) for name, versions in sorted(fingerprints_by_dataset.items())},
        not_estimable=description["parameters"].get("not_estimable", {}),
    )


def write_bank(store: Store, table_id: str, path: Path, cite: str | None = None, licence: str | None = None) -> Path:
    """Write a saved table `irt_items` as a bank's file (JSON), which others can use without the store; return `path`.

    The file also has what the same analysis saved in other tables: the subjects with their accuracy, and how well the
    fits predict held-out responses. cite, licence: how to cite the bank, and under which licence it may be used.
    Raises FcaError for an id that is no bank, and where those other tables are missing.
    """
    items = read_bank(store, table_id)
    description = _description_of_table(store, table_id)
    abilities = _table_of_same_analysis(store, description, IRT_ABILITIES.name)
    fits_of_bank = _table_of_same_analysis(store, description, IRT_FITS.name)
    subjects = abilities[["dataset", "corruption", "subject", "model", "snapshot", "top1"]]
    origin = origin_of(store, table_id)

    parameters = description["parameters"]
    content: dict[str, Any] = {
        "fca_bank": FORMAT,
        "cite": cite,
        "licence": licence,
        "fitted": {
            "fca": version("fca"),
            "table": table_id,
            "model": parameters.get("model"),
            "calibration": parameters.get("calibration"),
            "compat": parameters.get("compat"),
            "seed": parameters.get("seed"),
            "trait": parameters.get("trait"),
            "answers": parameters.get("answers"),  # digests of the responses
            "fits": _json_records(fits_of_bank),
        },
        "subjects": _json_records(subjects),
        "runs": list(origin.runs),
        "fingerprints": dict(origin.fingerprints),
        "items": {name: _json_values(items[name]) for name in items},
    }
    if origin.not_estimable:  # the entry is optional in a bank's file
        content["not_estimable"] = origin.not_estimable
    write_json(path, content)
    return path


def saved_banks(store: Store) -> dict[str, dict[str, Any]]:
    """The saved tables `irt_items`, by id; the values are the contents of table.json."""
    return {table_id: table for table_id, table in store.saved_tables().items() if table["name"] == IRT_ITEMS.name}


def _is_file(bank: str) -> bool:
    return Path(bank).expanduser().is_file()


def _description_of_table(store: Store, table_id: str) -> dict[str, Any]:
    """The content of a saved bank's table.json: its name, parameters and runs.

    Raises FcaError for an id that is no bank, for a damaged table, and for a bank whose severities were fitted
    separately: each of them then has its own scale, but a bank measures ability on one scale of all severities.
    """
    tables = store.saved_tables()
    banks = saved_banks(store)
    has_file = (store.outputs / "tables" / table_id / "table.json").exists()
    if has_file and table_id not in tables:  # the store lists no damaged tables
        raise FcaError("bank", table_id, "a table whose table.json is whole", "save it again: fca analyse")

    if table_id not in banks:
        value = f"{table_id}, a table {tables[table_id]['name']}" if table_id in tables else table_id
        allowed = f"a saved table irt_items: {', '.join(banks) or 'none yet'}; or a file of fca bank"
        raise FcaError("bank", value, allowed, "make one: fca analyse analysis=irt")

    if tables[table_id]["parameters"].get("calibration") == "separate":
        allowed = "one of calibration joint or ability, with one scale for all severities"
        raise FcaError("bank", f"{table_id}, of calibration separate", allowed, "fca analyse analysis=irt")
    return tables[table_id]


def _table_of_same_analysis(store: Store, description: Mapping[str, Any], name: str) -> pd.DataFrame:
    """The lines of the table of this name that the same analysis saved: the one with the same parameters and runs.

    Raises FcaError where there is none, or none that is whole.
    """
    for table_id, candidate in store.saved_tables().items():
        if candidate["name"] != name:
            continue
        if candidate["parameters"] == description["parameters"] and candidate["runs"] == description["runs"]:
            with if_whole():  # goes on to the next table where this one is damaged
                return store.saved_lines(table_id)
    raise FcaError(f"table {name} of this bank", "missing", "the one saved with it", "fca analyse analysis=irt again")


def _content_of_file(bank: str) -> dict[str, Any]:
    """The content of a bank's file (JSON), with the types of its entries checked.

    The items in it are checked by `_items_of_file`. Raises FcaError for a file that is damaged, for one of another
    version of the format, and for one that is no bank.
    """
    with refused_if_damaged("bank", bank, "a file of fca bank", NEXT_STEP):
        content = read_object(Path(bank).expanduser(), **ENTRY_TYPES)
    if content["fca_bank"] != FORMAT:
        raise FcaError("bank", f"{bank}, of format {content['fca_bank']}", f"format {FORMAT}", "take a newer fca")

    # ids of runs, and the fingerprints of each data set by its name
    has_names = has_type(content["runs"], list[str]) and has_type(content["fingerprints"], dict[str, list[str]])
    if not has_names:
        raise FcaError("bank", bank, "a file of fca bank: runs and fingerprints are names", NEXT_STEP)
    content.setdefault("not_estimable", {})  # `write_bank` leaves the entry out where all scales were estimated
    if not has_type(content["not_estimable"], dict[str, list[str]]):
        raise FcaError("bank", bank, "a file of fca bank: not_estimable names scales by data set", NEXT_STEP)
    return content


def _items_of_file(bank: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    """The items of a bank's file as lines of table irt_items; columns that the file lacks have missing values.

    columns: the values of all items, by name of the column. Each required value is checked, as files come from
    strangers. Raises FcaError for a missing column, columns of different lengths, no item, and a value out of range.
    """
    required_columns = (*TEXT_COLUMNS, *PARAMETER_RANGES)
    lengths = {len(values) if isinstance(values, list) else -1 for values in columns.values()}  # -1: not a list
    has_all_columns = all(name in columns for name in required_columns)
    has_equal_lengths = len(lengths) == 1 and min(lengths) > 0  # all are lists, and they are not empty
    if not has_all_columns or not has_equal_lengths:
        allowed = f"a file of fca bank: columns {', '.join(required_columns)}, as long as each other"
        raise FcaError("bank", bank, allowed, NEXT_STEP)

    for name in required_columns:
        for position, value in enumerate(columns[name]):
            if not _is_allowed(name, value):
                what = f"{name} of item {position} of bank {bank}"
                raise FcaError(what, f"{value!s:.60}", _allowed_values(name), NEXT_STEP)

    # entries of the file that are no column of the table are left out
    frame = pd.DataFrame({name: columns[name] for name in map(str, IRT_ITEMS.columns) if name in columns})
    return IRT_ITEMS.frame(frame.astype(dict.fromkeys(PARAMETER_RANGES, float)))  # a file may have 1 for 1.0


def _is_allowed(name: str, value: object) -> bool:
    """Whether an item may have this value in a column: a text for names, a number in its range for parameters."""
    if name in TEXT_COLUMNS:
        return isinstance(value, str) and (name != "irt_model" or value in MODELS)
    if isinstance(value, bool) or not isinstance(value, int | float):  # True is an int in Python
        return False
    low, high = PARAMETER_RANGES[name]
    return low <= value <= high and (name != "discrimination" or value > 0)  # at 0 an item measures nothing


def _allowed_values(name: str) -> str:
    """The values that `_is_allowed` allows in a column, in words for the message of an error.

    name: the column, one of TEXT_COLUMNS or PARAMETER_RANGES.
    """
    if name == "irt_model":
        return ", ".join(MODELS)
    if name in TEXT_COLUMNS:
        return "a text"
    if name == "discrimination":
        return "a number above 0"
    low, high = PARAMETER_RANGES[name]
    return f"a number from {low} to {high}"


def _json_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The lines of a frame as dictionaries for JSON."""
    columns = {str(name): _json_values(frame[name]) for name in frame}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _json_values(column: pd.Series) -> list[Any]:
    """The values of a column for JSON: None (null) for what is missing, a list for a tuple."""
    values: list[Any] = []
    for value in column.astype(object):
        if isinstance(value, np.ndarray | tuple | list):
            values.append(list(value))
        else:
            values.append(value if pd.notna(value) else None)
    return values
