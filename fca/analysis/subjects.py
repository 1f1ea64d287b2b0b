"""Who answered: the stored rows of full models, and a name for each that tells it from all others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fca.analysis.select import check_query, narrowed, records
from fca.nouns import FcaError
from fca.responses import kind_and_severity
from fca.store import Store

_TOLD_BY = ("adaptation", "weights", "seed", "run")  # in this order, where one name has several of them
_RUN = re.compile(r"(?P<run>[0-9a-f]{12})/(?P<snapshot>[^/]+)")


def answering_rows(store: Store, query: str | None) -> pd.DataFrame:
    """`predict` rows on test images by models that know every class of the data set, clean or under a corruption.

    Rows that know only some of the classes (sub-models) are no subjects: they were not asked all items.
    With columns subject (named), corruption, severity, and `model` and `snapshot` of the subject. query: narrows them.
    Raises FcaError for a query that cannot be read, and for one data set in two versions.
    """
    rows = store.rows()
    check_query(rows, query)
    every_class = (rows["ncl"] == rows["num_classes"]).fillna(value=False)
    rows = narrowed(rows[(rows["task"] == "predict") & every_class & (rows["split"] == "test")], query)
    places = [kind_and_severity(shift) for shift in rows["shift"].fillna("")]
    rows = rows[np.array([place is not None for place in places], dtype=bool)].reset_index(drop=True)
    for name, part in rows.groupby("dataset"):
        versions = sorted(part["fingerprint"].unique())
        if len(versions) > 1:
            step = f'keep one, e.g. analysis.query="\\"fingerprint == \'{versions[0]}\'\\""'
            raise FcaError(f"fingerprint of {name} in the rows read", ", ".join(versions), "one version", step)
    rows["corruption"] = _kinds(rows)
    rows["severity"] = [place[1] for place in places if place is not None]
    named = [part.assign(**_named(part)) for _, part in rows.groupby("dataset")]
    if not named:
        return rows.assign(subject=None)
    return pd.concat(named).sort_values(["dataset", "subject", "corruption", "severity"], ignore_index=True)


def _kinds(rows: pd.DataFrame) -> list[str]:
    """defocus_blur; where a data set has it from two sources (generated, published), corruption/defocus_blur."""
    words = [(*shift.split("/"), shift)[:2] for shift in rows["shift"]]  # clean is its own kind
    sources: dict[tuple[str, str], set[str]] = {}
    for name, (source, kind) in zip(rows["dataset"], words, strict=True):
        sources.setdefault((name, kind), set()).add(source)
    several = [len(sources[name, kind]) > 1 for name, (_, kind) in zip(rows["dataset"], words, strict=True)]
    return [f"{source}/{kind}" if more else kind for more, (source, kind) in zip(several, words, strict=True)]


def _named(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """The subject, model and snapshot of each row of one data set: same network, snapshot and seed, same subject."""
    lines = sorted(records(rows.reset_index()), key=lambda row: row["run_id"])
    subject_of: dict[int, tuple[Any, ...]] = {}
    about: dict[tuple[Any, ...], dict[str, Any]] = {}
    asked: set[tuple[Any, ...]] = set()
    for row in lines:
        key = _key(row)
        if (key, row["shift"]) in asked:  # the same network asked the same in another way: one more subject
            key = (*key, row["run_id"])
        asked.add((key, row["shift"]))
        subject_of[row["index"]] = key
        known = about.setdefault(key, {"model": row["model"], "snapshot": key[2], "run": key[0] or row["run_id"]})
        for column in ("adaptation", "weights", "seed"):
            value = _none(row[column])
            if known.get(column) is None and not _RUN.fullmatch(str(value)):
                known[column] = value
    names = dict(zip(about, _told_apart(list(about.values())), strict=True))
    keys = [subject_of[at] for at in rows.index]
    told = {name: [about[key][name] for key in keys] for name in ("model", "snapshot")}
    return {"subject": [names[key] for key in keys], **told}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which subject a row is of: the training run (or None), the network and its settings, the snapshot."""
    run, snapshot = _none(row["parent"]), _none(row["snapshot"])
    found = _RUN.fullmatch(str(row["weights"]))
    if found is not None:
        run, snapshot = found["run"], found["snapshot"]
    if run is not None:
        return run, row["model"], snapshot or "best"
    columns = ("weights", "adaptation", "seed", "input_size", "compat")
    return None, row["model"], snapshot, *(_none(row[column]) for column in columns)


def _none(value: Any) -> Any:
    return None if pd.isna(value) else value


def _told_apart(about: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each: the model, its snapshot where there are others than the best, and what else is needed."""
    series = {one["model"] for one in about if one["snapshot"] not in (None, "best")}
    named = [f"{one['model']}/{one['snapshot']}" if one["snapshot"] else one["model"] for one in about]
    names = [name if one["model"] in series else one["model"] for name, one in zip(named, about, strict=True)]
    for column in _TOLD_BY:
        for name in {name for name in names if names.count(name) > 1}:
            alike = [at for at, other in enumerate(names) if other == name]
            if len({about[at].get(column) for at in alike}) > 1:
                for at in alike:
                    names[at] = _with(name, column, about[at].get(column))
    return names


def _with(name: str, column: str, value: Any) -> str:
    if value is None or value == "scratch":
        return name
    return f"{name}, {column} {value}" if column in ("seed", "run") else f"{name}, {value}"
