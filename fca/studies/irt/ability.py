"""How able are new subjects, measured with items that were fitted before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd

from fca.stats.irt import ItemBank, score_ability
from fca.store import Store
from fca.studies.answers import Gathered, clean_responses, shifted_responses
from fca.studies.irt.fits import digest_of
from fca.studies.irt.parameters import ITEMS, PAPER, SEVERAL, THEORY, Asked, Z, calibrated, items
from fca.types import FcaError, Table

COLUMNS = ["dataset", "corruption", "subject", "model", "snapshot", "top1"]
COLUMNS += ["ability", "ability_low", "ability_high", "n_items"]
QUESTION = "How able are these subjects on the scale of the saved items?"
METHOD = {"ability": "most probable given the items, prior N(0, 1); 95 %: Fisher information, the items taken as known"}


@dataclass(frozen=True)
class Ability:
    """`analysis=ability`; scores `predict` rows of full models and files against saved items, fitting no item again.

    query:     narrows the rows.    responses: files of answers.
    bank:      id of a saved table `irt_items`; null: items are fitted here (2pl) from the same clean answers.
    Stored rows are scored with the items of their data set, files with those that have their names. Items that the bank
    has and a subject was not asked count as missing. Raises FcaError for an id that is no bank, and when it has none
    of the items.
    """

    query: str | None = None
    responses: list[str] = field(default_factory=list)
    bank: str | None = None

    def __call__(self, store: Store) -> list[Table]:
        """Table bank_ability: one line a subject, data set and corruption, ablest first."""
        bank = self._fitted(store) if self.bank is None else read_bank(store, self.bank)
        groups = [(str(dataset), str(kind), part) for (dataset, kind), part in bank.groupby(["dataset", "corruption"])]
        frames, used = [], []
        kinds = {kind for _, kind, _ in groups}
        for corruption, gathered in self._answers(store, shifted=kinds != {"clean"}):
            for dataset, kind, part in groups:
                if _fits(gathered, corruption, dataset, kind):
                    scored = _scored(gathered, kind, part)
                    frames += [scored] if len(scored) else []
                    used += [gathered] if len(scored) else []
        if not frames:
            known = ", ".join(f"{dataset} {kind}" for dataset, kind, _ in groups)
            raise FcaError("items of these answers in the bank", "none", known, "take a bank of their data set")
        runs = tuple(sorted({run for one in used for run in one.runs}))
        parameters = {**asdict(self), **METHOD, "answers": [digest_of(one) for one in used]}
        source = f"{PAPER}, section 2; {THEORY}"
        frame = pd.concat(frames, ignore_index=True)[COLUMNS]
        return [Table("bank_ability", QUESTION, source, frame, parameters, runs)]

    def _fitted(self, store: Store) -> pd.DataFrame:
        fits = takewhile(lambda one: one.first, calibrated(store, self.query, self.responses, Asked()))
        return pd.concat([items(one) for one in fits], ignore_index=True)

    def _answers(self, store: Store, shifted: bool) -> Iterator[tuple[str, Gathered]]:
        for gathered in clean_responses(store, self.query, self.responses):
            yield "clean", gathered
        if shifted:
            yield from shifted_responses(store, self.query, fewest=1)


def read_bank(store: Store, table_id: str) -> pd.DataFrame:
    """The items of a saved table `irt_items`: one line an item, in the columns of that table.

    Raises FcaError, listing the banks there are, for an id that is none; and for a bank whose severities are on scales
    of their own.
    """
    folder = store.outputs / "tables"
    about = {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("*/table.json"))}
    banks = [found for found, table in about.items() if table["name"] == "irt_items"]
    if table_id not in banks:
        value = f"{table_id}, a table {about[table_id]['name']}" if table_id in about else table_id
        allowed = f"a saved table irt_items: {', '.join(banks) or 'none yet'}"
        raise FcaError("analysis.bank", value, allowed, "make one: fca analyse analysis=irt")
    if about[table_id]["parameters"]["calibration"] == "separate":
        allowed = "one of calibration joint or ability, with one scale for all severities"
        raise FcaError("analysis.bank", f"{table_id}, of calibration separate", allowed, "fca analyse analysis=irt")
    return pd.read_parquet(folder / table_id / "table.parquet")[ITEMS]


def _fits(gathered: Gathered, corruption: str, dataset: str, kind: str) -> bool:
    """Whether these answers may be to items of this data set and kind: by name where stored, else by their items."""
    if gathered.fingerprint is not None:
        return (gathered.dataset, corruption) == (dataset, kind)
    return kind == SEVERAL or bool((gathered.responses.items["corruption"] == kind).any())


def _scored(gathered: Gathered, kind: str, bank: pd.DataFrame) -> pd.DataFrame:
    """The subjects that answered any of these items."""
    responses = gathered.responses
    at = pd.Index(responses.items["item"]).get_indexer(pd.Index(bank["item"]))
    correct = np.where(at >= 0, responses.correct[:, at], np.nan)  # -1, not there, would be the last item
    asked = (~np.isnan(correct)).sum(axis=1)
    some = asked > 0
    if not some.any():
        return pd.DataFrame(columns=COLUMNS)
    parameters: Any = [bank[name].to_numpy(dtype=np.float64) for name in ItemBank._fields[1:]]
    scored = score_ability(correct[some], ItemBank(str(bank["irt_model"].iloc[0]), *parameters))
    frame: pd.DataFrame = responses.subjects.loc[some, ["subject", "model", "snapshot"]].assign(
        dataset=gathered.dataset,
        corruption=kind,
        top1=np.nanmean(correct[some], axis=1),
        ability=scored.ability,
        ability_low=scored.ability - Z * scored.ability_se,
        ability_high=scored.ability + Z * scored.ability_se,
        n_items=asked[some],
    )
    return frame.sort_values("ability", ascending=False, kind="stable")
