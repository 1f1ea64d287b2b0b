"""How able are new subjects, measured with items that were fitted before (analysis=ability)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import chain, takewhile
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd

from fca.store import Store
from fca.studies.irt.bank import bank_id, origin_of, read_bank
from fca.studies.irt.fits import ABILITY, N_ITEMS, PAPER, SUBJECT, THEORY, digest_of
from fca.studies.irt.fittable import shifted_responses
from fca.studies.irt.irt import SEVERAL, Irt, calibrated, items, ranked
from fca.studies.irt.not_estimable import bank_priors_noted, log_bank_priors, priors_noted
from fca.studies.irt.stats import ItemBank, score_ability
from fca.studies.irt.stats.scoring import score_eap
from fca.tables.answers import DatasetResponses, clean_responses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import CORRUPTION, DATASET, MODEL, SNAPSHOT, TOP1, TableSpec
from fca.types import FcaError, Table, interval_columns
from fca.validation import Allowed

BANK_ABILITY = TableSpec(
    "bank_ability",
    "How able are these subjects on the scale of the saved items?",
    f"{PAPER}, section 2; {THEORY}",
    (DATASET, CORRUPTION, SUBJECT, MODEL, SNAPSHOT, TOP1, *interval_columns(ABILITY), N_ITEMS),
)
SCORES = {"map": score_ability, "eap": score_eap}
METHOD = {
    "ability": "prior N(0, 1), the items taken as known; map: most probable, 95 % by Fisher information; eap: "
    "posterior mean, 95 % by the posterior standard deviation"
}


@dataclass(frozen=True)
class Ability:
    """`analysis=ability`; scores `predict` rows of full models and files against saved items, fitting no item again.

    Stored rows are scored with the items of their data set, files with those that have their names. Items of the bank
    without a response of a subject count as missing. Subjects that no common item links are scored apart where items
    are fitted here; a saved bank with several scales scores on each, named by the bank's data set. Raises FcaError for
    an id that is no bank, and when it has none of the items.
    """

    tables: ClassVar = (BANK_ABILITY,)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    bank: Annotated[
        str | None,
        "id of a saved table irt_items, or a file of fca bank; null: fitted here (2pl) from the same clean responses",
    ] = None
    score: Annotated[
        str,
        Allowed(choices=tuple(SCORES)),
        "map: most probable ability; eap: expected ability (they differ after few items)",
    ] = "map"

    def __call__(self, store: Store) -> list[Table]:
        """Table bank_ability: one line a subject, data set and corruption, ablest first."""
        if self.bank is None:
            fits = list(takewhile(lambda one: one.first, calibrated(store, Irt(self.query, self.responses))))
            bank = pd.concat([items(one) for one in fits], ignore_index=True)
            every = [one.gathered for one in fits]
        else:
            bank = read_bank(store, self.bank)
            every = clean_responses(store, self.query, self.responses)
        groups = [(str(dataset), str(kind), part) for (dataset, kind), part in bank.groupby(["dataset", "corruption"])]
        clean = [("clean", gathered) for gathered in every]
        under = shifted_responses(store, self.query, fewest=1) if (bank["corruption"] != "clean").any() else []
        frames, used, used_items = [], [], []
        for corruption, gathered in chain(clean, under):
            scored = [
                (dataset, part, _scored(gathered, kind, part, self.score))
                for dataset, kind, part in groups
                if _fits(gathered, corruption, dataset, kind)
            ]
            scored = [(dataset, part, lines) for dataset, part, lines in scored if len(lines)]
            has_several_scales = len({dataset for dataset, _, _ in scored}) > 1
            for dataset, part, lines in scored:
                if has_several_scales:  # of a saved bank: abilities of two scales are not comparable
                    lines["dataset"] = f"{gathered.dataset}, scale of {dataset}"
                frames.append(lines)
                used.append(gathered)
                used_items.append(part)
        if not frames:
            known = ", ".join(f"{dataset} {kind}" for dataset, kind, _ in groups)
            raise FcaError("items of these responses in the bank", "none", known, "take a bank of their data set")
        parameters = {**asdict(self), **METHOD, "answers": [digest_of(one) for one in used]}
        parameters["bank"] = None if self.bank is None else bank_id(self.bank)
        if self.bank is None:
            parameters |= priors_noted(
                {one.gathered.dataset: one.fit.not_estimable for one in fits if one.fit.not_estimable}
            )
        else:
            taken = origin_of(store, self.bank).not_estimable_of(pd.concat(used_items))
            log_bank_priors(f"bank {self.bank}", taken)
            parameters |= bank_priors_noted(f"bank {parameters['bank']}", taken)
        runs = sorted({run for one in used for run in one.runs})
        return [BANK_ABILITY.table(pd.concat(frames, ignore_index=True), parameters, runs)]


def _fits(gathered: DatasetResponses, corruption: str, dataset: str, kind: str) -> bool:
    """Whether these responses may be to items of this data set and kind: by name where stored, else by their items."""
    if gathered.fingerprint is not None:
        return (gathered.dataset, corruption) == (dataset, kind)
    return kind == SEVERAL or bool((gathered.responses.items["corruption"] == kind).any())


def _scored(gathered: DatasetResponses, kind: str, bank: pd.DataFrame, score: str) -> pd.DataFrame:
    """The subjects with a response to any of these items."""
    responses = gathered.responses
    at = pd.Index(responses.items["item"]).get_indexer(pd.Index(bank["item"]))
    correct = np.where(at >= 0, responses.correct[:, at], np.nan)  # -1, not there, would be the last item
    some = np.flatnonzero(np.isfinite(correct).any(axis=1))
    if not len(some):
        return BANK_ABILITY.frame([])
    parameters = bank[list(ItemBank._fields[1:])].to_numpy(dtype=np.float64).T
    scored = SCORES[score](correct[some], ItemBank(str(bank["irt_model"].iloc[0]), *parameters))
    frame = ranked(responses.subjects.iloc[some], correct[some], scored)
    return BANK_ABILITY.frame(frame.assign(dataset=gathered.dataset, corruption=kind))
