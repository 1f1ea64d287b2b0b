"""Which labels look wrong judging by the responses, and how well that finds the errors that people verified.

Also how a file of people's verdicts is read and joined to items by name (analysis=label_errors).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer

from fca.csv_table import read_table
from fca.progress import track
from fca.stats import label_errors as stats
from fca.stats.label_errors import RULES
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import (
    DIFFICULTY,
    DISCRIMINATION,
    FEASIBILITY,
    ITEM_TOP1,
    MODAL_WRONG_SHARE,
    P_MAX,
    PAPER,
    Compat,
    IrtModel,
)
from fca.studies.irt.fittable import clean_with_subjects
from fca.studies.irt.not_estimable import priors_noted
from fca.tables import table
from fca.tables.answers import DatasetResponses, subjects_at_chance
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import DATASET, IMAGE_ID, LABEL, RANK, TableSpec
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed, Seed

VERDICTS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
EXAMPLES = 3
SUSPECTS = 100  # of each data set on the page
FLAGGED = (0.05, 0.10, 0.25)
SHARES = np.linspace(0, 1, 101)
NOT_LISTED = "not_listed"  # among the parameters: data sets without suspects, and why
AT_CHANCE_REASON = "no label is suspected, as all subjects are at the level of chance"

_RULES = {
    "modal_wrong_share": "same wrong class",
    "modal_wrong_minus_top1": "same wrong class - right",
    "low_top1": "few models right",
    "low_p_max": "low p_max",
    "low_item_rest": "low item-rest correlation",
    "low_discrimination_feasibility": "our fit: low discrimination, feasibility",
    "low_discrimination_feasibility_seed001": "as the paper fitted it: low in both",
}
AS_PAPER = "low_discrimination_feasibility_seed001"
RULE = Column("rule", str, "", "rule that ranks the images", _RULES)
AUC = Column("auc", float, ".3f", "chance that an image with a wrong label ranks above another")
AUC_REVIEWED = Column("auc_reviewed", float, ".3f", "AUC among reviewed images")
RECALLS = tuple(
    Column(f"recall_{100 * share:.0f}", float, ".1%", f"share of errors in the first {share:.0%}") for share in FLAGGED
)
PRECISION = Column("precision_at_k", float, ".1%", "share of errors among the first k")
COUNTS = (
    Column("errors", int, ".0f", "known wrong labels"),
    Column("reviewed", int, ".0f", "reviewed labels"),
    Column("unmatched", int, ".0f", "verdicts on other items"),
    fits.N_ITEMS,
)
SHARE_FLAGGED = Column("share_flagged", float, ".0%", "share of images flagged")
RECALL = Column("recall", float, ".1%", "share of known errors found")
SUSPECT_RANK = RANK.with_format(".0f", "rank, 1 is the most suspect")
OTHER_CLASS = Column("wrong_class", str, "", "most frequent wrong class")
_JUDGED = {"error": "wrong by the verdicts", "right": "right by the verdicts", "none": "not reviewed"}
VERDICT = table.VERDICT.with_format("", "verdict on the label").with_choices(_JUDGED)
_SUSPECT = (DATASET, SUSPECT_RANK, IMAGE_ID, LABEL, OTHER_CLASS, MODAL_WRONG_SHARE, ITEM_TOP1)

LABEL_ERROR_RULES = TableSpec(
    "label_error_rules",
    "How well does each rule find the labels that people verified to be wrong?",
    f"{PAPER}, 3.1",
    (
        *(DATASET, RULE, *interval_columns(AUC), *interval_columns(AUC_REVIEWED)),
        *(end for recall in RECALLS for end in interval_columns(recall)),
        *(Column("k", int, ".0f", "images counted as flagged"), *interval_columns(PRECISION)),
        *(Column("precision_by_chance", float, ".1%", "share of errors among all"), *COUNTS),
    ),
)
LABEL_ERROR_CURVE = TableSpec(
    "label_error_curve",
    "Which share of the known errors is found when a share of all is flagged?",
    f"{PAPER}, 3.1",
    (DATASET, RULE, SHARE_FLAGGED, RECALL),
)
LABEL_SUSPECTS = TableSpec(
    "label_suspects",
    f"Which labels look wrong? (the {SUSPECTS} images of each data set that most models give one other class)",
    "modal wrong share (p_max: Sharma et al., 2023), ties by few right responses, then low p_max",
    (*_SUSPECT, P_MAX, DISCRIMINATION, VERDICT),
)
LABEL_ERROR_SCORES = TableSpec(
    "label_error_scores",
    "How suspect is the label of every image?",
    f"as label_suspects; {PAPER}, eq. 3",
    (
        *(*_SUSPECT, Column("item_rest", float, ".2f", "correlation with accuracy on all other items")),
        *(P_MAX, DISCRIMINATION, FEASIBILITY, DIFFICULTY, VERDICT),
    ),
)
METHOD = {
    "errors": "items whose verdict is 1; in all columns but auc_reviewed every item without a verdict counts as clean, "
    "which favours rules like the one that chose what was reviewed",
    "auc": "95 %: DeLong on the logit scale, items as drawn",
    "recall": "share of the errors among the 5, 10, 25 % most suspect items; 95 %: Wilson over the errors; by chance "
    "as large as the share flagged",
    "precision_at_k": "95 %: Wilson over the k most suspect; by chance: errors / n_items",
    "as the paper fitted it": "compat=seed001: 3pl-upper by fca.studies.irt.stats.variational.fit_variational",
    "equal scores": "in random order; reported is the expectation over it",
    "claim of the paper": "30 to 40 % of the errors are low in discrimination and feasibility; the share flagged is "
    "not stated",
}


@dataclass(frozen=True)
class LabelErrors:
    """`analysis=label_errors`; reads full models' responses to clean test images, and files of responses."""

    tables: ClassVar = (LABEL_ERROR_RULES, LABEL_ERROR_CURVE, LABEL_SUSPECTS, LABEL_ERROR_SCORES)

    query: Query = None
    responses: Annotated[
        ResponseFiles,
        "files of responses with predicted classes (pred): npz; each a data set, or more subjects of a stored one",
    ] = field(default_factory=list)
    verdicts: Annotated[
        str | None, "CSV of labels that people reviewed; null: suspects are ranked, and nothing is judged"
    ] = None
    verdict_columns: Annotated[
        list[str], "columns of item names and of verdicts in that file (1 = the label is wrong)"
    ] = field(default_factory=lambda: ["item", "error"])
    model: Annotated[
        IrtModel, "of item responses, for p_max and the rule of low discrimination and feasibility, by our fit"
    ] = "3pl-upper"
    compat: Annotated[
        Compat,
        "seed001 adds that rule as the paper fitted it (3pl-upper, by variational inference); minutes for "
        "50,000 images",
    ] = None
    k: Annotated[
        int | None, Allowed(1), "precision among the k most suspect; null: as many as there are known errors"
    ] = None
    seed: Annotated[Seed, "of the fits, where they draw"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables label_error_rules, label_error_curve (empty without verdicts), label_suspects, label_error_scores."""
        verdicts = None if self.verdicts is None else read_verdicts(self.verdicts, self.verdict_columns)
        every = clean_with_subjects(store, self.query, self.responses)
        sources = [source for source in every if source.responses.pred is not None]
        if not sources:
            what = f"responses of {', '.join(source.dataset for source in every)}"
            step = "give the predicted classes (pred), not only whether they are right"
            raise FcaError(what, "only right or wrong", "classes: wrong ones are compared", step)
        shown = track(sources, "label errors, by data set")
        scored = [_scored(source, self.model, self.compat, self.seed, verdicts) for source in shown]
        judged = [one for one in scored if one.judged is not None]
        if verdicts is not None and not judged:
            raise no_match(str(self.verdicts), verdicts, sources[0].responses.items["item"])
        scores = pd.concat([one.frame for one in scored], ignore_index=True)
        guessing = [source.dataset for source in sources if subjects_at_chance(source.responses).all()]
        is_listed = (scores["rank"] <= SUSPECTS) & ~scores["dataset"].isin(guessing)
        first = scores.loc[is_listed, list(LABEL_SUSPECTS.columns)]
        rates = LABEL_ERROR_RULES.frame(line for one in judged for line in _rates(one, self.k))
        numbers = LABEL_ERROR_RULES.columns[2:]
        frames = (
            rates.astype({str(column): "Int64" if column.value_type is int else "float64" for column in numbers}),
            LABEL_ERROR_CURVE.frame(line for one in judged for line in _curve(one)),
            first.sort_values(["dataset", "rank"], ignore_index=True),
            scores,
        )
        rules = {"rules": "; ".join(f"{name}: {rule}" for name, rule in RULES.items())}
        left_out = [f"{one.dataset}: responses without classes" for one in every if one.responses.pred is None]
        not_listed = {NOT_LISTED: [f"{name}: {AT_CHANCE_REASON}" for name in guessing]} if guessing else {}
        parameters = {**asdict(self), **METHOD, **rules, "left_out": left_out, **not_listed}
        fitted_sets = [(one, fits.fitted(one, self.model, None, self.seed)) for one in sources]
        parameters |= priors_noted({one.dataset: fit.not_estimable for one, fit in fitted_sets if fit.not_estimable})
        runs = [run for source in sources for run in source.runs]
        return [spec.table(frame, parameters, runs) for spec, frame in zip(self.tables, frames, strict=True)]


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
    frame = read_table(path, path)
    if lost := [name for name in columns if name not in frame]:
        raise FcaError(
            "analysis.verdict_columns", ", ".join(lost), ", ".join(map(repr, frame)), f"name columns of {path}"
        )
    known = frame[list(columns)]
    known = known[(known != "").all(axis=1)]
    items, given = known[columns[0]], known[columns[1]].str.lower()
    if (odd := ~given.isin(list(VERDICTS))).any():
        raise FcaError(f"verdict in {columns[1]}", given[odd].iloc[0], "1 (wrong label) or 0", f"mend {path}")
    if items.duplicated().any():
        twice = items[items.duplicated()].iloc[0]
        raise FcaError(f"item of {path}", f"{twice} twice", "one verdict an item", "join its verdicts")
    return pd.Series(given.map(VERDICTS).to_numpy(dtype=bool), index=pd.Index(items, name="item"))


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
    step = "name the column of names in analysis.verdict_columns, or the responses that it judges in analysis.responses"
    return FcaError(f"items of {path}", f"{theirs}, ...", f"names of items, e.g. {ours}", step)


class Scored(NamedTuple):
    """The items of one source, its scores by rule, and verdicts on them."""

    dataset: str
    frame: pd.DataFrame
    rules: dict[str, Float[np.ndarray, " items"]]
    judged: Judged | None


def _scored(source: DatasetResponses, model: str, compat: str | None, seed: int, verdicts: pd.Series | None) -> Scored:
    responses = source.responses
    assert responses.pred is not None  # others are left out
    fit = fits.fitted(source, model, None, seed)
    of_fit = {name: getattr(fit, name) for name in ("discrimination", "feasibility", "p_max")}
    agreed, top1 = stats.modal_wrong(responses.correct, responses.pred), stats.item_top1(responses.correct)
    rank = np.empty(len(top1), dtype=np.int64)
    rank[np.lexsort((fit.p_max, top1, -agreed.share))] = np.arange(1, len(top1) + 1)
    judged = None if verdicts is None else judge(verdicts, responses.items["item"])
    verdict = np.full(len(top1), None, dtype=object)  # where nobody reviewed
    if judged is not None:
        verdict[judged.reviewed] = "right"
        verdict[judged.error] = "error"
    wrong = np.array([*responses.classes, None], dtype=object)[agreed.answer]  # -1 takes the last
    about = {"dataset": source.dataset, "rank": rank, OTHER_CLASS: wrong, "verdict": verdict}
    about |= {"modal_wrong_share": agreed.share, "top1": top1, "item_rest": stats.item_rest(responses.correct)}
    frame = responses.items[["image_id", "label"]].reset_index(drop=True)
    frame = LABEL_ERROR_SCORES.frame(frame.assign(**about, **of_fit, difficulty=fit.difficulty))
    rules = stats.suspicion(responses.correct, responses.pred, **of_fit)
    if compat is not None:
        theirs = fits.fitted(source, "3pl-upper", compat, seed)
        rules[AS_PAPER] = stats.low_in_both(theirs.discrimination, theirs.feasibility)
    return Scored(source.dataset, frame, rules, judged)


def _rates(scored: Scored, k: int | None) -> Iterator[dict[str, Any]]:
    """One line a rule."""
    judged = scored.judged
    assert judged is not None
    error, reviewed = judged.error, judged.reviewed
    n, errors = len(error), int(error.sum())
    if not 0 < errors < n:
        raise FcaError(f"errors of {scored.dataset}", f"{errors} of {n} items", "some, not all", "look at the verdicts")
    k = errors if k is None else k
    if not 1 <= k <= n:
        raise FcaError("analysis.k", k, f"1 to {n}, the items of {scored.dataset}", "change it")
    counts = {"errors": errors, "reviewed": int(reviewed.sum()), "unmatched": judged.unmatched, "n_items": n}
    for rule, score in scored.rules.items():
        found = {AUC: stats.auc(score, error)}
        if not error[reviewed].all():
            found[AUC_REVIEWED] = stats.auc(score[reviewed], error[reviewed])
        found |= {recall: stats.recall_at(score, error, share) for recall, share in zip(RECALLS, FLAGGED, strict=True)}
        found[PRECISION] = stats.precision_at(score, error, k)
        line = {"dataset": scored.dataset, "rule": rule, "k": k, "precision_by_chance": errors / n, **counts}
        for name, rate in found.items():
            line |= zip(interval_columns(name), rate, strict=True)
        yield line


def _curve(scored: Scored) -> Iterator[dict[str, Any]]:
    assert scored.judged is not None
    for rule, score in scored.rules.items():
        recall = stats.recall_curve(score, scored.judged.error, SHARES)
        for share, found in zip(SHARES.tolist(), recall.tolist(), strict=True):
            yield {"dataset": scored.dataset, "rule": rule, "share_flagged": share, "recall": found}
