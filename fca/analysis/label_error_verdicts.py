"""Which labels people found to be wrong: a file of verdicts, joined to items by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Integer

from fca.nouns import FcaError

SAYS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
EXAMPLES = 3


class Judged(NamedTuple):
    """Items in the light of a file of verdicts. unmatched: verdicts on items that are not here."""

    reviewed: Bool[np.ndarray, " items"]
    error: Bool[np.ndarray, " items"]
    unmatched: int


def read_verdicts(path: str, columns: Sequence[str]) -> pd.Series:
    """Whether the label is wrong (bool) by name of the item, from a CSV file (.csv, .csv.gz).

    columns: that of the item's name and that of the verdict: 1 wrong, 0 right, empty not reviewed.
    Raises FcaError for a file or column that is not there, another verdict, and an item judged twice.
    """
    if len(columns) != 2:
        allowed = "two: the item's name and 1 for a wrong label"
        raise FcaError("analysis.verdict_columns", list(columns), allowed, "e.g. [file,err_given_lt3]")
    if not Path(path).is_file():
        raise FcaError("analysis.verdicts", path, "a CSV file", "mend the path")
    frame = pd.read_csv(path, dtype=str)
    if lost := [name for name in columns if name not in frame]:
        raise FcaError("analysis.verdict_columns", ", ".join(lost), ", ".join(frame.columns), f"name columns of {path}")
    known = frame[list(columns)].dropna()
    items, said = known[columns[0]], known[columns[1]].str.lower()
    if (odd := ~said.isin(list(SAYS))).any():
        raise FcaError(f"verdict in {columns[1]}", said[odd].iloc[0], "1 (wrong label) or 0", f"mend {path}")
    if items.duplicated().any():
        twice = items[items.duplicated()].iloc[0]
        raise FcaError(f"item of {path}", f"{twice} twice", "one verdict an item", "join its verdicts")
    return pd.Series(said.map(SAYS).to_numpy(dtype=bool), index=pd.Index(items, name="item"))


def judge(verdicts: pd.Series, items: pd.Series) -> Judged | None:
    """The verdicts on these items (names); None where none of them is meant."""
    at = positions(verdicts.index, items)
    known = at >= 0
    if not known.any():
        return None
    reviewed, error = np.zeros(len(items), dtype=bool), np.zeros(len(items), dtype=bool)
    reviewed[at[known]] = True
    error[at[known]] = verdicts.to_numpy()[known]
    return Judged(reviewed, error, int((~known).sum()))


def positions(names: pd.Index, items: pd.Series) -> Integer[np.ndarray, " names"]:
    """Where each name stands among the items, or -1: the same name, else the same last part of the path if that is
    unique on both sides.

    >>> positions(pd.Index(["b/2.png", "1.png", "3.png"]), pd.Series(["a/1.png", "b/2.png", "a/3.png", "b/3.png"]))
    array([ 1,  0, -1])
    """
    full = pd.Index(items).get_indexer(names)
    ours, theirs = (pd.Series(list(side), dtype="str").str.rsplit("/", n=1).str[-1] for side in (items, names))
    ours = ours[~ours.duplicated(keep=False)]
    by_base = pd.Index(ours).get_indexer(pd.Index(theirs.where(~theirs.duplicated(keep=False))))
    base = np.append(ours.index.to_numpy(), -1)[by_base]  # -1 takes the last
    free = ~np.isin(base, full[full >= 0])  # an item that is named in full is not meant by another name too
    return np.where(full >= 0, full, np.where(free, base, -1))


def no_match(path: str, verdicts: pd.Series, items: pd.Series) -> FcaError:
    """What to raise when a file of verdicts is about none of the items."""
    theirs, ours = (", ".join(map(str, list(side)[:EXAMPLES])) for side in (verdicts.index, items))
    step = "name the column of names in analysis.verdict_columns, or the answers that it judges in analysis.responses"
    return FcaError(f"items of {path}", f"{theirs}, ...", f"names of items, e.g. {ours}", step)
