"""Labels that look wrong by the responses, and how well they agree with the errors that people verified.

Also reads a file of people's verdicts and joins it to items by name (analysis=label_errors).
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

VERDICT_OF_WORD = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
EXAMPLES = 3
SUSPECTS_LISTED = 100  # of each data set on the page
FLAGGED_SHARES = (0.05, 0.10, 0.25)
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
    Column(f"recall_{100 * share:.0f}", float, ".1%", f"share of errors in the first {share:.0%}")
    for share in FLAGGED_SHARES
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
        DATASET,
        RULE,
        *interval_columns(AUC),
        *interval_columns(AUC_REVIEWED),
        *(end for recall in RECALLS for end in interval_columns(recall)),
        Column("k", int, ".0f", "images counted as flagged"),
        *interval_columns(PRECISION),
        Column("precision_by_chance", float, ".1%", "share of errors among all"),
        *COUNTS,
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
    f"Which labels look wrong? (the {SUSPECTS_LISTED} images of each data set that most models give one other class)",
    "modal wrong share (p_max: Sharma et al., 2023), ties by few right responses, then low p_max",
    (*_SUSPECT, P_MAX, DISCRIMINATION, VERDICT),
)
LABEL_ERROR_SCORES = TableSpec(
    "label_error_scores",
    "How suspect is the label of every image?",
    f"as label_suspects; {PAPER}, eq. 3",
    (
        *_SUSPECT,
        Column("item_rest", float, ".2f", "correlation with accuracy on all other items"),
        P_MAX,
        DISCRIMINATION,
        FEASIBILITY,
        DIFFICULTY,
        VERDICT,
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
        """Tables label_error_rules, label_error_curve, label_suspects and label_error_scores.

        The first two judge the rules by people's verdicts, and are empty without them. Raises FcaError where no
        responses have predicted classes, where no verdict is on any of the items, and as `read_verdicts` and
        `_rule_lines` do.
        """
        verdicts = None if self.verdicts is None else read_verdicts(self.verdicts, self.verdict_columns)
        all_sources = clean_with_subjects(store, self.query, self.responses)
        sources = [source for source in all_sources if source.responses.pred is not None]
        if not sources:
            what = f"responses of {', '.join(source.dataset for source in all_sources)}"
            step = "give the predicted classes (pred), not only whether they are right"
            raise FcaError(what, "only right or wrong", "classes: wrong ones are compared", step)

        scored_sources = [
            _score_items(source, self.model, self.compat, self.seed, verdicts)
            for source in track(sources, "label errors, by data set")
        ]
        judged_sources = [scored for scored in scored_sources if scored.judged is not None]
        if verdicts is not None and not judged_sources:
            raise no_match(str(self.verdicts), verdicts, sources[0].responses.items["item"])

        rates = LABEL_ERROR_RULES.frame(line for scored in judged_sources for line in _rule_lines(scored, self.k))
        # the types of numeric columns are set, because a column without any value has none; all columns are numeric
        # but the first two, dataset and rule
        type_of_column = {
            str(column): "Int64" if column.value_type is int else "float64" for column in LABEL_ERROR_RULES.columns[2:]
        }
        curve = LABEL_ERROR_CURVE.frame(line for scored in judged_sources for line in _curve_lines(scored))

        # no label is suspected where all subjects are at the level of chance
        scores = pd.concat([scored.frame for scored in scored_sources], ignore_index=True)
        datasets_at_chance = [source.dataset for source in sources if subjects_at_chance(source.responses).all()]
        is_listed = (scores["rank"] <= SUSPECTS_LISTED) & ~scores["dataset"].isin(datasets_at_chance)
        suspects = scores.loc[is_listed, list(LABEL_SUSPECTS.columns)]
        suspects = suspects.sort_values(["dataset", "rank"], ignore_index=True)

        frames = (rates.astype(type_of_column), curve, suspects, scores)
        parameters = self._parameters(all_sources, datasets_at_chance)
        runs = [run for source in sources for run in source.runs]
        return [spec.table(frame, parameters, runs) for spec, frame in zip(self.tables, frames, strict=True)]

    def _parameters(self, all_sources: Sequence[DatasetResponses], datasets_at_chance: Sequence[str]) -> dict[str, Any]:
        """Parameters of the tables: settings, methods, and what the tables lack.

        The tables lack data sets without predicted classes (left_out), and the suspects of data sets on which all
        subjects are at the level of chance. Where the responses do not determine a spread of ability or difficulty, the
        fit takes it from the prior; a note names each such data set (not estimable).
        all_sources: all data sets, also those without predicted classes.
        datasets_at_chance: names of the data sets on which all subjects are at the level of chance.
        """
        left_out: list[str] = []
        not_estimable: dict[str, tuple[str, ...]] = {}
        for source in all_sources:
            if source.responses.pred is None:
                left_out.append(f"{source.dataset}: responses without classes")
                continue
            fit = fits.fitted(source, self.model, compat=None, seed=self.seed)  # kept in memory, not made again
            if fit.not_estimable:
                not_estimable[source.dataset] = fit.not_estimable

        parameters = {
            **asdict(self),
            **METHOD,
            "rules": "; ".join(f"{name}: {rule}" for name, rule in RULES.items()),
            "left_out": left_out,
        }
        if datasets_at_chance:
            parameters[NOT_LISTED] = [f"{name}: {AT_CHANCE_REASON}" for name in datasets_at_chance]
        return parameters | priors_noted(not_estimable)


class Judged(NamedTuple):
    """People's verdicts on the labels of items.

    reviewed: whether an item has a verdict.
    error: whether the verdict is that its label is wrong.
    unmatched: number of verdicts on items that are not among these.
    """

    reviewed: Bool[np.ndarray, " items"]
    error: Bool[np.ndarray, " items"]
    unmatched: int


def read_verdicts(path: str, columns: Sequence[str]) -> pd.Series:
    """Read people's verdicts on labels from a CSV file (.csv, .csv.gz): whether a label is wrong, by name of the item.

    columns: two names, of the column with the names of items and of the column with the verdicts. A verdict is 1 or
    true if the label is wrong, 0 or false if it is right. Lines with an empty name or verdict are left out, since such
    items were not reviewed.
    Raises FcaError unless `columns` has two names, for a file or column that does not exist, for another verdict, and
    for an item judged twice.
    """
    if len(columns) != 2:
        allowed = "two: the item's name and 1 for a wrong label"
        raise FcaError("analysis.verdict_columns", list(columns), allowed, "e.g. [file,err_given_lt3]")
    if not Path(path).is_file():
        raise FcaError("analysis.verdicts", path, "a CSV file", "mend the path")

    frame = read_table(path, name=path)
    missing_columns = [name for name in columns if name not in frame]
    if missing_columns:
        columns_of_file = ", ".join(map(repr, frame))
        step = f"name columns of {path}"
        raise FcaError("analysis.verdict_columns", ", ".join(missing_columns), columns_of_file, step)

    is_reviewed = (frame[list(columns)] != "").all(axis=1)
    items = frame.loc[is_reviewed, columns[0]]
    verdict_words = frame.loc[is_reviewed, columns[1]].str.lower()

    unknown_words = verdict_words[~verdict_words.isin(list(VERDICT_OF_WORD))]
    if len(unknown_words):
        raise FcaError(f"verdict in {columns[1]}", unknown_words.iloc[0], "1 (wrong label) or 0", f"mend {path}")
    repeated_items = items[items.duplicated()]
    if len(repeated_items):
        step = "join its verdicts"
        raise FcaError(f"item of {path}", f"{repeated_items.iloc[0]} twice", "one verdict an item", step)

    is_wrong = verdict_words.map(VERDICT_OF_WORD).to_numpy(dtype=bool)
    return pd.Series(is_wrong, index=pd.Index(items, name="item"))


def judge(verdicts: pd.Series, items: pd.Series) -> Judged | None:
    """Match verdicts to items by name: which items were reviewed, and which labels are wrong.

    verdicts: whether a label is wrong, by name of the item, from `read_verdicts`.
    items: names of the items.

    Names are matched as in `positions`. None if no verdict is on any of the items.
    """
    item_positions = positions(verdicts.index, items)
    is_matched = item_positions >= 0
    if not is_matched.any():
        return None

    matched_positions = item_positions[is_matched]
    reviewed = np.zeros(len(items), dtype=bool)
    error = np.zeros(len(items), dtype=bool)
    reviewed[matched_positions] = True
    error[matched_positions] = verdicts.to_numpy()[is_matched]
    return Judged(reviewed, error, unmatched=int((~is_matched).sum()))


def positions(names: pd.Index, items: pd.Series) -> Integer[np.ndarray, " names"]:
    """Position of each name among the items; -1 where no item has it.

    A name matches the item of the same name. Otherwise it matches the item with the same last part of the path, because
    a file of verdicts may have been made in other folders. That part must be unique among the items and among the
    names.

    >>> positions(pd.Index(["b/2.png", "1.png", "3.png"]), pd.Series(["a/1.png", "b/2.png", "a/3.png", "b/3.png"]))
    array([ 1,  0, -1])
    """
    by_full_name = pd.Index(items).get_indexer(names)  # -1 without a match

    # match by the last part of the path; a part that several names share is set to missing, which matches nothing
    item_bases = _last_parts(items)
    name_bases = _last_parts(names)
    unique_item_bases = item_bases[~item_bases.duplicated(keep=False)]
    unique_name_bases = name_bases.where(~name_bases.duplicated(keep=False))
    matches = pd.Index(unique_item_bases).get_indexer(pd.Index(unique_name_bases))
    # positions among all items; a name without a match has -1 in `matches`, which takes the appended -1
    by_base = np.append(unique_item_bases.index.to_numpy(), -1)[matches]

    # an item whose full name is among the names is taken: no other name matches it by the last part of the path
    is_free = ~np.isin(by_base, by_full_name[by_full_name >= 0])
    return np.where(by_full_name >= 0, by_full_name, np.where(is_free, by_base, -1))


def _last_parts(paths: pd.Index | pd.Series) -> pd.Series:
    """The part of each path after its last slash, with positions 0..n-1 as the index."""
    return pd.Series(list(paths), dtype="str").str.rsplit("/", n=1).str[-1]


def no_match(path: str, verdicts: pd.Series, items: pd.Series) -> FcaError:
    """The error to raise when a file of verdicts names none of the items."""
    names_in_file = ", ".join(map(str, verdicts.index[:EXAMPLES]))
    names_of_items = ", ".join(map(str, list(items)[:EXAMPLES]))
    allowed = f"names of items, e.g. {names_of_items}"
    step = "name the column of names in analysis.verdict_columns, or the responses that it judges in analysis.responses"
    return FcaError(f"items of {path}", f"{names_in_file}, ...", allowed, step)


class Scored(NamedTuple):
    """The items of one data set, how suspect their labels are by each rule, and people's verdicts on the labels.

    frame: lines of table label_error_scores.
    rules: score of each item by name of the rule; higher is more suspect.
    judged: None if there are no verdicts on these items.
    """

    dataset: str
    frame: pd.DataFrame
    rules: dict[str, Float[np.ndarray, " items"]]
    judged: Judged | None


def _score_items(
    source: DatasetResponses, model: str, compat: str | None, seed: int, verdicts: pd.Series | None
) -> Scored:
    """Score how suspect the label of every item of one data set is by each rule, and match the verdicts to the items.

    Each rule gives every item a score; higher is more suspect.
    source: responses with predicted classes.
    model: item response model of the fit that some rules use.
    compat: if not None, one more rule is scored: low discrimination and feasibility in the fit of the paper.
    verdicts: whether a label is wrong, by name of the item, from `read_verdicts`; None without verdicts.
    """
    responses = source.responses
    assert responses.pred is not None  # the caller leaves out sources without predicted classes
    fit = fits.fitted(source, model, compat=None, seed=seed)
    # of each item: the wrong class that most subjects predict (answer), and the share of subjects that do
    modal_wrong = stats.modal_wrong(responses.correct, responses.pred)
    top1 = stats.item_top1(responses.correct)

    # most suspect first: large modal wrong share, then few right responses, then low p_max
    most_suspect_first = np.lexsort((fit.p_max, top1, -modal_wrong.share))
    rank = np.empty(len(top1), dtype=np.int64)
    rank[most_suspect_first] = np.arange(1, len(top1) + 1)

    judged = None if verdicts is None else judge(verdicts, responses.items["item"])
    verdict = np.full(len(top1), None, dtype=object)  # where nobody reviewed
    if judged is not None:
        verdict[judged.reviewed] = "right"
        verdict[judged.error] = "error"

    class_or_none = np.array([*responses.classes, None], dtype=object)  # a class of -1 (none is known) takes the last
    frame = responses.items[["image_id", "label"]].reset_index(drop=True)
    frame = frame.assign(
        **{OTHER_CLASS: class_or_none[modal_wrong.answer]},
        dataset=source.dataset,
        rank=rank,
        verdict=verdict,
        modal_wrong_share=modal_wrong.share,
        top1=top1,
        item_rest=stats.item_rest(responses.correct),  # correlation of the responses with accuracy on other items
        discrimination=fit.discrimination,
        feasibility=fit.feasibility,
        p_max=fit.p_max,
        difficulty=fit.difficulty,
    )
    scores_by_rule = stats.suspicion(  # by all rules of RULES
        responses.correct,
        responses.pred,
        discrimination=fit.discrimination,
        feasibility=fit.feasibility,
        p_max=fit.p_max,
    )
    if compat is not None:
        paper_fit = fits.fitted(source, "3pl-upper", compat, seed)  # by variational inference
        scores_by_rule[AS_PAPER] = stats.low_in_both(paper_fit.discrimination, paper_fit.feasibility)
    return Scored(source.dataset, LABEL_ERROR_SCORES.frame(frame), scores_by_rule, judged)


def _rule_lines(scored: Scored, k: int | None) -> Iterator[dict[str, Any]]:
    """Lines of table label_error_rules: how well each rule finds the labels of one data set that verdicts call wrong.

    Labels that nobody reviewed count as right, except in the AUC among reviewed items.
    k: precision is the share of wrong labels among the k most suspect items; None: as many as there are wrong labels.
    Raises FcaError if none or all of the labels are wrong, and for a k outside 1 to the number of items.
    """
    judged = scored.judged
    assert judged is not None  # the caller passes only data sets with verdicts
    error, reviewed = judged.error, judged.reviewed
    n_items = len(error)
    n_errors = int(error.sum())
    if not 0 < n_errors < n_items:
        value = f"{n_errors} of {n_items} items"
        raise FcaError(f"errors of {scored.dataset}", value, "some, not all", "look at the verdicts")
    k = n_errors if k is None else k
    if not 1 <= k <= n_items:
        raise FcaError("analysis.k", k, f"1 to {n_items}, the items of {scored.dataset}", "change it")

    for rule, score in scored.rules.items():
        rate_by_column = {AUC: stats.auc(score, error), PRECISION: stats.precision_at(score, error, k)}
        if not error[reviewed].all():  # AUC among reviewed items needs right labels too
            rate_by_column[AUC_REVIEWED] = stats.auc(score[reviewed], error[reviewed])
        for recall, share in zip(RECALLS, FLAGGED_SHARES, strict=True):
            rate_by_column[recall] = stats.recall_at(score, error, share)

        line = {
            "dataset": scored.dataset,
            "rule": rule,
            "k": k,
            "precision_by_chance": n_errors / n_items,
            "errors": n_errors,
            "reviewed": int(reviewed.sum()),
            "unmatched": judged.unmatched,
            "n_items": n_items,
        }
        for column, rate in rate_by_column.items():  # a rate and the ends of its interval
            line |= zip(interval_columns(column), rate, strict=True)
        yield line


def _curve_lines(scored: Scored) -> Iterator[dict[str, Any]]:
    """Lines of table label_error_curve: the share of wrong labels found, by share of images flagged and by rule."""
    assert scored.judged is not None
    for rule, score in scored.rules.items():
        recalls = stats.recall_curve(score, scored.judged.error, SHARES)
        for share, recall in zip(SHARES.tolist(), recalls.tolist(), strict=True):
            yield {"dataset": scored.dataset, "rule": rule, "share_flagged": share, "recall": recall}
