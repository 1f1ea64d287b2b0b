"""Abilities of new subjects, measured with items that were fitted before (analysis=ability)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, takewhile
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.store import Store
from fca.studies.irt.bank import bank_id, origin_of, read_bank
from fca.studies.irt.fits import ABILITY, N_ITEMS, PAPER, SUBJECT, THEORY, digest_of
from fca.studies.irt.fittable import shifted_responses
from fca.studies.irt.irt import SEVERAL, Calibrated, Irt, calibrated, items, ranked
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
        """Table bank_ability: one line per subject, data set and corruption, ablest first.

        A scale is a group of items that were fitted together; only abilities on the same scale can be compared.
        Raises FcaError as `read_bank` does, and where no response is to an item of the bank.
        """
        fitted_scales: list[Calibrated] = []  # none with a saved bank
        if self.bank is None:
            # `calibrated` yields the fits of all data sets (their clean images) first, then those of their corruptions,
            # which are not needed here: `takewhile` stops at the first of them
            fits = calibrated(store, Irt(self.query, self.responses))
            fitted_scales = list(takewhile(lambda scale: scale.is_clean_or_of_file, fits))
            bank = pd.concat([items(scale) for scale in fitted_scales], ignore_index=True)
            clean_sources = [scale.gathered for scale in fitted_scales]
        else:
            bank = read_bank(store, self.bank)
            clean_sources = clean_responses(store, self.query, self.responses)

        # the items of one data set and kind of corruption were fitted together, so they are on one scale
        item_groups = [
            (str(dataset), str(kind), bank_items)
            for (dataset, kind), bank_items in bank.groupby(["dataset", "corruption"])
        ]
        # each source of responses, which is a data set with stored runs or a file, with the corruption of its images.
        # For a file the word has no effect: `_lines_by_scale` reads the corruptions of its items
        sources: Iterable[tuple[str, DatasetResponses]] = [("clean", gathered) for gathered in clean_sources]
        if (bank["corruption"] != "clean").any():
            # one subject is enough, because nothing is fitted to these responses
            sources = chain(sources, shifted_responses(store, self.query, fewest=1))

        # score the responses of each source on each scale
        frames: list[pd.DataFrame] = []
        scored_sources: list[DatasetResponses] = []
        used_items: list[pd.DataFrame] = []  # of the scales on which subjects were scored
        for corruption, gathered in sources:
            for bank_items, lines in self._lines_by_scale(gathered, corruption, item_groups):
                frames.append(lines)
                scored_sources.append(gathered)
                used_items.append(bank_items)

        if not frames:
            names = ", ".join(f"{dataset} {kind}" for dataset, kind, _ in item_groups)
            raise FcaError("items of these responses in the bank", "none", names, "take a bank of their data set")

        parameters = {
            **asdict(self),
            **METHOD,
            # digests of the responses, for the table's id: a file can change under its name
            "answers": [digest_of(gathered) for gathered in scored_sources],
            "bank": None if self.bank is None else bank_id(self.bank),
            # a fit takes the spread of ability or difficulty from its prior where the responses do not determine it;
            # these notes name the scales of such fits
            **self._notes_on_priors(store, fitted_scales, pd.concat(used_items)),
        }
        runs = sorted({run for gathered in scored_sources for run in gathered.runs})
        return [BANK_ABILITY.table(pd.concat(frames, ignore_index=True), parameters, runs)]

    def _notes_on_priors(
        self, store: Store, fitted_scales: Sequence[Calibrated], used_items: pd.DataFrame
    ) -> dict[str, Any]:
        """Parameters of the table on spreads of ability or difficulty that a fit of the items took from the prior.

        A fit does so if its responses do not determine the spread. For a saved bank, a warning is logged too; a fit
        that was made here has already logged it. There are no such parameters if all fits determined both spreads.
        fitted_scales: the fits that were made here, in place of a saved bank.
        used_items: the items of the bank that subjects were scored on.
        """
        if self.bank is None:
            return priors_noted(
                {scale.gathered.dataset: scale.fit.not_estimable for scale in fitted_scales if scale.fit.not_estimable}
            )
        not_estimable = origin_of(store, self.bank).not_estimable_of(used_items)
        log_bank_priors(f"bank {self.bank}", not_estimable)
        return bank_priors_noted(f"bank {bank_id(self.bank)}", not_estimable)

    def _lines_by_scale(
        self, gathered: DatasetResponses, corruption: str, item_groups: Sequence[tuple[str, str, pd.DataFrame]]
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Score the subjects of one source of responses on every scale of the bank that they have responses to.

        Yields, for each scale, its items and the lines of table bank_ability. Where a source has items of several data
        sets of the bank, the column dataset of its lines also names the data set of the scale, because abilities on two
        scales cannot be compared.

        corruption:  of the images of the source; not used for a file, whose items have their own corruptions.
        item_groups: data set, corruption and items of each scale.
        """
        scored = []
        for dataset, kind, bank_items in item_groups:
            if not _may_have_items_of(gathered, corruption, dataset, kind):
                continue
            lines = _score_subjects(gathered, kind, bank_items, self.score)
            if len(lines):
                scored.append((dataset, bank_items, lines))

        has_several_data_sets = len({dataset for dataset, _, _ in scored}) > 1
        for dataset, bank_items, lines in scored:
            if has_several_data_sets:
                lines["dataset"] = f"{gathered.dataset}, scale of {dataset}"
            yield bank_items, lines


def _may_have_items_of(gathered: DatasetResponses, corruption: str, dataset: str, kind: str) -> bool:
    """Whether these responses can be to items that a bank has under this data set and kind of corruption.

    gathered: responses of one source.
    corruption: of their images.
    dataset, kind: of the items of the bank.

    Stored responses are matched by their data set and corruption. Those of a file (without fingerprint) are matched by
    the corruptions of their items, because a file may have another name than the data set. Items of several
    corruptions (SEVERAL) match any file.
    """
    if gathered.fingerprint is not None:
        return (gathered.dataset, corruption) == (dataset, kind)
    return kind == SEVERAL or bool((gathered.responses.items["corruption"] == kind).any())


def _score_subjects(gathered: DatasetResponses, kind: str, bank: pd.DataFrame, score: str) -> pd.DataFrame:
    """Lines of table bank_ability: the ability of each subject with a response to any item of `bank`, ablest first.

    No lines are returned where no subject has such a response.

    gathered: the responses of the subjects.
    kind:     corruption of the items, for the lines.
    bank:     items that were fitted together, as lines of table irt_items. Items that a subject did not respond to
              count as missing.
    score:    how abilities are estimated, a key of SCORES: map (most probable ability) or eap (expected ability).
    """
    responses = gathered.responses
    names = pd.Index(responses.items["item"])
    positions = names.get_indexer(pd.Index(bank["item"]))  # -1 for an item that is not among the responses
    is_present = positions >= 0
    correct = np.where(is_present, responses.correct[:, positions], np.nan)  # subjects x bank items

    has_response = np.isfinite(correct).any(axis=1)
    responding = np.flatnonzero(has_response)
    if not len(responding):
        return BANK_ABILITY.frame([])

    irt_model = str(bank["irt_model"].iloc[0])  # the same for all items of a scale
    parameter_names = list(ItemBank._fields[1:])  # difficulty, discrimination and so on, without the model
    parameters = bank[parameter_names].to_numpy(dtype=np.float64).T
    item_bank = ItemBank(irt_model, *parameters)
    estimates = SCORES[score](correct[responding], item_bank)

    subjects = responses.subjects.iloc[responding]
    frame = ranked(subjects, correct[responding], estimates)  # a line for each subject, ablest first
    return BANK_ABILITY.frame(frame.assign(dataset=gathered.dataset, corruption=kind))
