"""Under which conditions a classifier fails, from stored searches (analysis=failure_search)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.report.pictures import ACROSS, data_uri, png_of
from fca.stats.intervals import NO_INTERVAL, UNKNOWN_ESTIMATE, Estimated, wilson
from fca.store import Store
from fca.studies.generate.stats.domain import Domain, domain_of
from fca.studies.search.columns import (
    ACCEPTANCE,
    ACCURACY,
    CLEAN_ACCURACY,
    COVERING,
    DOMAIN,
    FILTER,
    GENERATOR,
    MONEY,
    N_DRAWN,
    N_SUBDOMAINS,
    N_VISITED,
    POLICY,
    SECOND,
    SKILL,
    SUBJECT,
    TARGET,
)
from fca.studies.search.stats.counts import CONFIRMING, p_lower, share_with_interval
from fca.studies.search.stats.explain import agreement, by_subdomain, members, pair_means, value_means
from fca.studies.search.stats.policies import make_policy
from fca.studies.search.stats.replay import replay, worst
from fca.tables.keys import Query
from fca.tables.rows import apply_query, readable_rows, records, require_rows
from fca.tables.table import (
    ATTRIBUTE,
    COLUMN,
    MODEL,
    PICTURE_KIND,
    RANK,
    RHO,
    ROW,
    RUN_ID,
    SEED,
    THUMBNAIL,
    WARNING,
    TableSpec,
    filled,
)
from fca.types import Arrays, Column, FcaError, Table, check_choice, interval_columns
from fca.validation import Allowed, Seed

ARRAYS = {  # a key is an array of indices; the arrays of its value have an entry for each of these
    "visited": ("correct", "shown"),
    "image_visit": ("image_accepted", "image_correct", "image_p", "image_score", "image_second"),
    "fresh_subdomain": ("fresh_correct", "fresh_shown", "fresh_rule"),
    "gallery_image": ("gallery",),
}
PARTIAL_POLICIES = ("bo", "gp_pairwise")
OUTSIDE_ALL_RULES = -1  # the number of the rule of fresh images that no rule holds for
FROM_VISITED = "visited"  # the estimate from the visited subdomains themselves
_ESTIMATES = {
    FROM_VISITED: "visited subdomains",
    **{name: f"a part, visited by {name}" for name in PARTIAL_POLICIES},
    **{f"{name} model": f"all, as the model of {name} then expects" for name in PARTIAL_POLICIES},
}
_CAUSES = {
    "generator": "both classifiers fail and the filter's score is low: the image may not show the prompt",
    "condition": "both classifiers fail and the filter's score is not low",
    "classifier": "only this classifier fails",
    "undecided": "undecided",
}
_PICTURE_KINDS = {"failure": "not recognised", "success": "recognised", "rejected": "rejected by the filter"}
_VERDICTS = ("confirmed", "not confirmed", "undecided", "not tested")

SEARCH = Column("search", str, "", "search", filters=True)
LOWEST = Column("lowest", float, ".1%", "accuracy of the subdomain (chosen as low, so below its true one)")
LOWEST_SHARED = Column("lowest_shared", int, ",.0f", "visited subdomains of this lowest accuracy")
CONDITIONS = Column("conditions", str, "", "attribute values")
RULE = Column("rule", str, "", "condition")
OUTSIDE = Column("outside", float, ".1%", "accuracy outside all rules")
SKILL_OVER_MEAN = SKILL.with_format(
    "+.2f", "variance that the policy's model explains, cross-validated; 0: as the mean"
)
ESTIMATE = Column("estimate", str, "", "estimated from", _ESTIMATES)
VALUE = Column("value", str, "", "value")
OTHER_ATTRIBUTE = Column("other", str, "", "second attribute")
OTHER_VALUE = Column("other_value", str, "", "its value")
BIAS = Column("bias", float, "+.1%", "difference from the mean of all subdomains")
FRESH = Column("fresh", float, ".1%", "accuracy of fresh images")
FRESH_OUTSIDE = Column("fresh_outside", float, ".1%", "accuracy of fresh images outside all rules")
CONFIRMED = Column("confirmed", str, "", "by fresh images", dict(zip(_VERDICTS, _VERDICTS, strict=True)))
FRESH_IMAGES = Column("fresh_images", int, ",.0f", "fresh images")
SECOND_ACCURACY = Column("second_accuracy", float, ".1%", "accuracy of the second classifier on the same images")
CAUSE = Column("cause", str, "", "whose failure", _CAUSES)
KIND = PICTURE_KIND.with_choices(_PICTURE_KINDS)
COMPARED = Column("compared", str, "", "compared with")
AGREEMENT_RHO = RHO.with_format("+.2f", "rank correlation of the accuracies of subdomains")
OVERLAP = Column("overlap", float, ".0%", "share of one's worst tenth that is in the other's")
CHANCE = Column("chance", float, ".0%", "overlap by chance")
AT_LEAST = Column("at_least", float, ".0%", "accuracy from")
BELOW = Column("below", float, ".0%", "to")
PROMPT = Column("prompt", str, "", "prompt")
TARGET_PROBABILITY = Column("p_target", float, ".2f", "probability of the target")
SCORE = Column("score", float, ".2f", "probability of the image's prompt, by the filter")
HOURS = Column("hours", float, ".2f", "hours of drawing and predicting")

PAPER = "Le Coz et al., 2024 (arXiv:2405.02332),"
_KEYS = (SEARCH, RUN_ID)
_RUN_COLUMNS = (
    SUBJECT,
    MODEL,
    DOMAIN,
    TARGET,
    SECOND,
    GENERATOR,
    FILTER,
    POLICY,
    WARNING,
    SEED,
    N_VISITED,
    N_SUBDOMAINS,
    N_DRAWN,
    *interval_columns(ACCEPTANCE),
    ACCURACY,
    CONDITIONS,
    *interval_columns(LOWEST),
    LOWEST_SHARED,
    *interval_columns(CLEAN_ACCURACY),
    SKILL_OVER_MEAN,
    HOURS,
    MONEY,
    COVERING.with_format(".2f"),
)

RUNS = TableSpec(
    "search_runs",
    "What did each search visit, and where is accuracy lowest?",
    f"{PAPER} section 4",
    (*_KEYS, *_RUN_COLUMNS),
)
RULES = TableSpec(
    "search_rules",
    "Which few conditions describe the failures?",
    f"new here, in addition to {PAPER} section 4.4",
    (
        *_KEYS,
        SUBJECT,
        RULE,
        N_VISITED,
        N_SUBDOMAINS,
        ACCURACY,
        OUTSIDE,
        *interval_columns(FRESH),
        *interval_columns(FRESH_OUTSIDE),
        FRESH_IMAGES,
        CONFIRMED,
    ),
)
VALUES = TableSpec(
    "search_values",
    "Which values make it fail?",
    f"{PAPER} averages by attribute value",
    (*_KEYS, ESTIMATE, ATTRIBUTE, VALUE, *interval_columns(ACCURACY), N_VISITED, BIAS),
)
PAIRS = TableSpec(
    "search_pairs",
    "Which pairs of values do?",
    f"{PAPER} heat map of weather and location",
    (
        *_KEYS,
        ESTIMATE,
        ATTRIBUTE,
        OTHER_ATTRIBUTE,
        VALUE,
        OTHER_VALUE,
        *interval_columns(ACCURACY),
        N_VISITED,
        BIAS,
    ),
)
CAUSES = TableSpec(
    "search_causes",
    "Does the classifier fail, or the generator?",
    f"new here, in addition to {PAPER} limits",
    (
        *_KEYS,
        CONDITIONS,
        *interval_columns(LOWEST),
        *interval_columns(SECOND_ACCURACY),
        *interval_columns(ACCEPTANCE),
        SCORE,
        CAUSE,
    ),
)
AGREES = TableSpec(
    "search_agreement",
    "Do two fail under the same conditions?",
    f"new here, in addition to {PAPER} section 4.4",
    (*_KEYS, COMPARED, N_VISITED, *interval_columns(AGREEMENT_RHO), *interval_columns(OVERLAP), CHANCE),
)
BINS = TableSpec(
    "search_accuracies",
    "How accurate are visited subdomains?",
    f"{PAPER} histogram",
    (*_KEYS, AT_LEAST, BELOW, N_VISITED),
)
GALLERY = TableSpec(
    "search_gallery",
    "What do failures look like?",
    f"{PAPER} samples and prompts",
    (*_KEYS, KIND, RANK, ROW, COLUMN, THUMBNAIL, PROMPT, TARGET_PROBABILITY, SCORE),
)
METHOD = {
    ACCURACY: "every subdomain counts the same; Student's interval over subdomains, which were drawn with their images",
    RULE: "greedy subgroup discovery at 5 % for all candidates together: fca.studies.search.stats.explain.find_rules",
    FRESH: "share of fresh images, each subdomain weighted by the independent images that its images are worth "
    "(effective_images); interval of Korn and Graubard over subdomains, too short where few of them are drawn and most "
    "have only right images: fca.studies.search.stats.counts.share_with_interval",
    CONFIRMED: "fresh images of the condition are recognised less often than those outside all rules (one-sided p up "
    "to 0.025, over subdomains by t, over images by Fisher's test and, between uneven sides, by permuting subdomains: "
    "fca.studies.search.stats.counts.p_lower); undecided with a single fresh subdomain inside or outside, and "
    "between uneven sides that can be dealt in fewer than 20 ways (2 subdomains and 2, 3 or 4): then no rule could be "
    "confirmed",
    LOWEST: "Wilson's interval; left out where several subdomains share the lowest accuracy with different numbers of "
    "images",
    CAUSE: "of the lowest tenth of visited subdomains. A classifier fails where its Wilson interval is below its mean "
    "over visited subdomains. Only this one fails where the second does not, and the second's interval is above this "
    "one's. A score, the mean of all drawn images, is low below the first quartile of visited subdomains. Otherwise "
    "undecided",
    OVERLAP: "of the subdomains that both visited; intervals over them. Two searches: one domain, two models",
}
log = logging.getLogger(__name__)


class Search(NamedTuple):
    """A stored search.

    name:    by which tables distinguish it from other searches.
    row:     the record of its run.
    rules:   the conditions of low accuracy that it found: attribute -> value.
    visits:  for each visit its subdomain, the number of right images and the number of images.
    results: the classifier's results by subdomain, see `by_subdomain`.
    second_results: those of the second classifier, on accepted images; empty without one.
    images:  one line for each image that was drawn.
    arrays:  everything that the run stored, by name.
    """

    name: str
    row: Mapping[str, Any]
    domain: Domain
    rules: list[dict[str, Any]]
    visits: tuple[np.ndarray, np.ndarray, np.ndarray]
    results: pd.DataFrame
    second_results: pd.DataFrame
    images: pd.DataFrame
    arrays: Arrays


@dataclass(frozen=True)
class FailureSearch:
    """`analysis=failure_search`; reads `search` rows."""

    tables: ClassVar = (RUNS, RULES, VALUES, PAIRS, CAUSES, AGREES, BINS, GALLERY)

    query: Query = None
    seed: Annotated[Seed, "of bootstrap resamples (the overlap of worst tenths) and of partial searches"] = 0
    partial: Annotated[
        int,
        Allowed(1),
        "subdomains that a partial search visits, as in the paper: a part of a complete search, replayed",
    ] = 300
    pair: Annotated[
        list[str],
        "two attributes shown together, e.g. [weather, location]; empty: those with the strongest joint effect",
    ] = field(default_factory=list)
    shown: Annotated[int, Allowed(1), "pictures of each kind"] = 16

    def __call__(self, store: Store) -> list[Table]:
        """The tables of all searches that can be read, one after another in each table.

        Raises FcaError if there are no searches, or if the setting `pair` names something that is no attribute of a
        domain.
        """
        searches = _searches(store, self.query)
        lines_by_table: list[list[Any]] = [[] for _ in self.tables]
        for position, search in enumerate(searches):
            value_lines, pair_lines = self._mean_lines(search)
            lines_of_search = (
                [_run_line(search)],
                _rule_lines(search),
                value_lines,
                pair_lines,
                _cause_lines(search),
                self._agreement_lines(search, searches[position + 1 :]),
                _bin_lines(search),
                self._gallery_lines(search),
            )
            keys = {SEARCH: search.name, RUN_ID: search.row[RUN_ID]}
            for table_lines, search_lines in zip(lines_by_table, lines_of_search, strict=True):
                table_lines.extend(keys | line for line in search_lines)

        parameters = asdict(self) | METHOD  # METHOD: column -> how it is computed, in words
        return filled(self.tables, lines_by_table, parameters, [search.row[RUN_ID] for search in searches])

    def _mean_lines(self, search: Search) -> tuple[list[Any], list[Any]]:
        """Lines of tables search_values and search_pairs: mean accuracy by value and by pair of values.

        The means are estimated from the visited subdomains. A search of all subdomains has further estimates, which
        show how far off a shorter search would be: from the subdomains that a policy would visit first, and from that
        policy's model. The bias of a further estimate is its difference from the mean of all subdomains.
        """
        value_frame = value_means(search.domain, *search.visits)
        pair_frame = pair_means(search.domain, *search.visits)
        # lines of the two attributes that are reported: those of the setting `pair`, else the pair of strongest effect
        is_of_pair = pair_frame[[ATTRIBUTE, OTHER_ATTRIBUTE]].isin(self._pair(search.domain, pair_frame)).all(axis=1)

        value_lines = _estimate_lines(FROM_VISITED, value_frame)
        pair_lines = _estimate_lines(FROM_VISITED, pair_frame[is_of_pair])
        for estimate, values, pairs in self._partial_estimates(search, value_frame, pair_frame):
            value_bias = values["accuracy"] - value_frame["accuracy"]
            pair_bias = pairs["accuracy"] - pair_frame["accuracy"]
            value_lines += _estimate_lines(estimate, values, value_bias)
            pair_lines += _estimate_lines(estimate, pairs[is_of_pair], pair_bias[is_of_pair])
        return value_lines, pair_lines

    def _pair(self, domain: Domain, pair_frame: pd.DataFrame) -> Sequence[str]:
        """The two attributes whose pairs of values are reported: those requested, else those of the strongest effect.

        Raises FcaError for a name that is no attribute of the domain.
        """
        pair = self.pair
        if not pair:
            strongest = pair_frame.sort_values("effect", ascending=False).head(1)
            pair = strongest[[ATTRIBUTE, OTHER_ATTRIBUTE]].to_numpy().ravel().tolist()
        for name in pair:
            check_choice("analysis.pair", name, domain.attributes, "take two of these, or narrow query=...")
        return pair

    def _partial_estimates(
        self, search: Search, value_frame: pd.DataFrame, pair_frame: pd.DataFrame
    ) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """Estimates from a part of a search: the name of each, its means by value, and its means by pair of values.

        Each policy in PARTIAL_POLICIES visits `partial` subdomains in a replay that looks up the images of this search.
        It yields two estimates: from the subdomains visited, and from what the policy's model predicts for all of them.
        A search that did not visit all subdomains, or has no more than `partial`, cannot be replayed and yields none.

        value_frame, pair_frame: the means over all subdomains, whose lines and columns the estimates have, too.
        """
        domain = search.domain
        is_complete = len(np.unique(search.visits[0])) == len(domain)
        if not is_complete or self.partial >= len(domain):
            return

        right = _right_table(search)  # subdomains x images: 1 right, 0 wrong, -1 none
        all_images = right.shape[1]  # a visit of the replay has all images of its subdomain
        for name in PARTIAL_POLICIES:
            partial_visits = replay(domain, right, name, self.seed, batches=(all_images,), most=self.partial)
            yield name, value_means(domain, *partial_visits), pair_means(domain, *partial_visits)

            policy: Any = make_policy(name, domain, self.seed)  # as in the replay, which does not return it
            predicted = policy.predict(*partial_visits).mean.clip(0, 1)  # a linear model may leave the range
            # means of predictions have no interval. 1: a cell is a value of one attribute; 2: a pair of values of two
            values = value_frame.assign(accuracy=_cell_means(domain, 1, predicted), low=np.nan, high=np.nan)
            pairs = pair_frame.assign(accuracy=_cell_means(domain, 2, predicted), low=np.nan, high=np.nan)
            yield f"{name} model", values, pairs

    def _agreement_lines(self, search: Search, later_searches: Sequence[Search]) -> Iterator[Any]:
        """Lines of table search_agreement: does this search's classifier fail where another classifier fails?

        The other one is the second classifier of this search, or the classifier of another search of the same domain.
        Accuracies are compared over the subdomains that have results of both classifiers. A classifier that shares
        fewer than two of them is left out.

        later_searches: the searches after this one in the list, so that each pair is compared once.
        """
        # without a second classifier its results are empty, and the pair is left out below
        results_by_name = {f"{search.row.get('second')}, on the same images": search.second_results}
        for later in later_searches:
            # the fingerprint is that of the prompts and of the target
            is_same_domain = later.row["fingerprint"] == search.row["fingerprint"]
            if is_same_domain and later.row[MODEL] != search.row[MODEL]:
                results_by_name[later.name] = later.results

        for name, results in results_by_name.items():
            joined = search.results.join(results.add_suffix("_2"), how="inner")
            if len(joined) < 2:
                continue

            # the rank correlation, the share of the worst tenths in common, and this share by chance
            rho, overlap, chance = agreement(joined["accuracy"].to_numpy(), joined["accuracy_2"].to_numpy(), self.seed)
            yield {
                COMPARED: name,
                N_VISITED: len(joined),
                **_interval_cells(AGREEMENT_RHO, rho),
                **_interval_cells(OVERLAP, overlap),
                CHANCE: chance,
            }

    def _gallery_lines(self, search: Search) -> Iterator[Any]:
        """Lines of table search_gallery: up to `shown` pictures of each kind, evenly spread over the stored pictures.

        A kind is success, failure, or rejected by the filter. Each line has the picture's place in a grid ACROSS wide.
        """
        # the image of each stored picture, in the order of the array `gallery`
        images = search.images.iloc[search.arrays["gallery_image"]].reset_index(drop=True)
        kinds = np.where(~images["accepted"], "rejected", np.where(images["correct"], "success", "failure"))
        for kind in _PICTURE_KINDS:
            positions = np.flatnonzero(kinds == kind)
            n_shown = min(self.shown, len(positions))
            shown_positions = positions[np.linspace(0, len(positions) - 1, n_shown).astype(int)]
            for rank, (position, image) in enumerate(images.loc[shown_positions].iterrows()):
                row, column = divmod(rank, ACROSS)
                yield {
                    KIND: kind,
                    RANK: rank + 1,
                    ROW: row,
                    COLUMN: column,
                    THUMBNAIL: data_uri(png_of(search.arrays["gallery"][position])),
                    PROMPT: search.arrays["prompts"][image["subdomain"]],
                    TARGET_PROBABILITY: image["p"],
                    SCORE: image["score"],
                }


def _share(correct: Any, n: Any) -> Estimated:
    """A share with Wilson's interval; NaN of nothing or of a missing number."""
    if not n > 0:
        return UNKNOWN_ESTIMATE
    return Estimated(correct / n, *wilson(int(correct), int(n)))


def _interval_cells(column: Column, estimated: Estimated) -> dict[Column, float]:
    """An estimate as the cells of a column and of the two ends of its interval."""
    return dict(zip(interval_columns(column), estimated, strict=True))


def _words(values: Mapping[str, Any]) -> str:
    """Attribute values in words."""
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _right_table(search: Search) -> np.ndarray:
    """Subdomains x images: whether each accepted image is right (1, 0), in the order drawn; -1 where there is none."""
    accepted = search.images[search.images["accepted"]]
    position = accepted.groupby("subdomain").cumcount()  # of an image among those of its subdomain
    right = np.full((len(search.domain), position.max() + 1), -1, np.int8)
    right[accepted["subdomain"], position] = accepted["correct"]
    return right


def _cell_means(domain: Domain, strength: int, accuracy: np.ndarray) -> np.ndarray:
    """Mean accuracy of the subdomains with each value (strength 1) or each pair of values (2).

    In the order of `value_means` and `pair_means`.    accuracy: of every subdomain.
    """
    means = [accuracy @ cells / cells.sum(axis=0) for _, cells in domain.indicators(strength)]
    return np.concatenate(means)


def _estimate_lines(estimate: str, means: pd.DataFrame, bias: pd.Series | float = np.nan) -> list[Any]:
    """Lines of `value_means` or `pair_means` under the names of the tables' columns."""
    names = {"low": ACCURACY.low, "high": ACCURACY.high, "visited": N_VISITED}
    frame = means.drop(columns="effect", errors="ignore").rename(columns=names)
    return records(frame.assign(**{ESTIMATE: estimate, BIAS: bias}))


def _run_line(search: Search) -> dict[Any, Any]:
    """The line of table search_runs for a search: what it visited, and where accuracy is lowest.

    Where several subdomains share the lowest accuracy, the line names the conditions of the first of them. Columns that
    the row of the search does not have are None.
    """
    row = search.row
    results = search.results
    lowest = results[results["accuracy"] == results["accuracy"].min()]
    first_lowest = lowest.iloc[0]
    lowest_share = _share(first_lowest["correct"], first_lowest["shown"])
    if (lowest["shown"] != first_lowest["shown"]).any():  # the tied subdomains have different intervals
        lowest_share = Estimated(lowest_share.value, *NO_INTERVAL)

    is_accepted = search.arrays["image_accepted"]
    line: dict[Any, Any] = {
        **row,  # its keys are names of columns; a column equals its name, so entries below replace those of equal name
        **_interval_cells(ACCEPTANCE, _share(is_accepted.sum(), len(is_accepted))),
        **_interval_cells(LOWEST, lowest_share),
        CONDITIONS: _words(search.domain.values(int(lowest.index[0]))),
        HOURS: row.get("gpu_s", np.nan) / 3600,
        ACCURACY: results["accuracy"].mean(),
        LOWEST_SHARED: len(lowest),
    }
    return {name: line.get(name) for name in _RUN_COLUMNS}


def _rule_lines(search: Search) -> Iterator[Any]:
    """Lines of table search_rules: one line for each rule, with the accuracy inside the rule and outside all rules.

    Both accuracies are reported twice: on the search's own images, from which the rule was selected, and on fresh
    images, which had no part in the selection.
    """
    accuracy = search.results["accuracy"]
    members_by_rule = np.array([members(search.domain, rule) for rule in search.rules])  # rules x subdomains
    is_outside: Any = ~members_by_rule.any(axis=0)
    fresh_outside = _fresh_results(search, OUTSIDE_ALL_RULES)
    outside_share = share_with_interval(*_counts(fresh_outside))

    for number, (rule, is_member) in enumerate(zip(search.rules, members_by_rule, strict=True)):
        fresh = _fresh_results(search, number)
        is_visited_member = is_member[accuracy.index]  # the index has the numbers of the visited subdomains
        yield {
            SUBJECT: search.row[SUBJECT],
            RULE: _words(rule),
            N_VISITED: is_visited_member.sum(),
            N_SUBDOMAINS: is_member.sum(),
            ACCURACY: accuracy[is_visited_member].mean(),
            OUTSIDE: accuracy[is_outside[accuracy.index]].mean(),
            **_interval_cells(FRESH, share_with_interval(*_counts(fresh))),
            **_interval_cells(FRESH_OUTSIDE, outside_share),
            FRESH_IMAGES: fresh["shown"].sum(),
            CONFIRMED: _verdict(fresh, fresh_outside),
        }


def _fresh_results(search: Search, rule_number: int) -> pd.DataFrame:
    """Results by subdomain (see `by_subdomain`) on the fresh images that were drawn to confirm a rule.

    rule_number: the position of the rule; OUTSIDE_ALL_RULES: the fresh images for comparison outside all rules.
    """
    is_of_rule = search.arrays["fresh_rule"] == rule_number
    counts = (search.arrays[f"fresh_{name}"][is_of_rule] for name in ("subdomain", "correct", "shown"))
    return by_subdomain(*counts)


def _counts(results: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Right images and images of each subdomain."""
    return results["correct"].to_numpy(), results["shown"].to_numpy()


def _verdict(inside: pd.DataFrame, outside: pd.DataFrame) -> str:
    """The verdict on a rule: are fresh images inside it recognised less often than fresh images outside all rules?

    It is "confirmed", "not confirmed", "undecided" where there are too few subdomains for a test, or "not tested" where
    no fresh image of the rule was accepted.

    inside, outside: results by subdomain, see `by_subdomain`.
    """
    if inside.empty:
        return "not tested"
    correct, shown = _counts(pd.concat([inside, outside]))
    is_inside = np.arange(len(shown)) < len(inside)
    p = p_lower(correct, shown, is_inside)  # one-sided p-value for a lower accuracy inside; NaN with too few subdomains
    if np.isnan(p):
        return "undecided"
    return "confirmed" if p <= CONFIRMING else "not confirmed"


def _cause_lines(search: Search) -> Iterator[Any]:
    """Lines of table search_causes: the likely cause of failure in each of the lowest tenth of visited subdomains.

    A classifier fails where its interval is below its mean accuracy. If both the tested and the second classifier fail
    there, the cause is the generator where the filter's score is low (the images may not show the prompt), else the
    condition. Without a filter there is no score (NaN), and this cause is undecided. If the tested classifier fails and
    the second does not, and the second's interval is above the tested one's, the cause is the classifier. Otherwise the
    cause is undecided.
    """
    images = search.images.groupby("subdomain").agg(
        n_accepted=("accepted", "sum"),
        n_drawn=("accepted", "size"),
        score=("score", "mean"),
    )
    low_score = images["score"].quantile(0.25)  # below it the images of a subdomain may not show their prompt
    mean = search.results["accuracy"].mean()
    second_mean = search.second_results["accuracy"].mean()

    # results have a line for each subdomain: accuracy, images right (`correct`) and images (`shown`); the columns of
    # the second classifier get names with _2
    is_worst = worst(search.results["accuracy"].to_numpy())
    joined = search.results[is_worst].join(search.second_results.add_suffix("_2")).join(images)
    for line in records(joined.reset_index(names="subdomain")):
        share = _share(line["correct"], line["shown"])
        second_share = _share(line["correct_2"], line["shown_2"])
        score = line["score"]

        # Without a second classifier the cause stays undecided, as comparisons with NaN are false. `not second_fails`
        # would be true then, hence `second_share.high >= second_mean`
        fails = share.high < mean
        second_fails = second_share.high < second_mean
        cause = "undecided"
        if fails and second_fails and not np.isnan(score):
            cause = "generator" if score < low_score else "condition"
        elif fails and second_share.high >= second_mean and second_share.low > share.high:
            cause = "classifier"

        yield {
            CONDITIONS: _words(search.domain.values(line["subdomain"])),
            **_interval_cells(LOWEST, share),
            **_interval_cells(SECOND_ACCURACY, second_share),
            **_interval_cells(ACCEPTANCE, _share(line["n_accepted"], line["n_drawn"])),
            SCORE: score,
            CAUSE: cause,
        }


def _bin_lines(search: Search) -> Iterator[Any]:
    """Lines of table search_accuracies: how many visited subdomains have an accuracy in each tenth of 0 to 100 %.

    The last tenth includes 100 %.
    """
    tenth = search.results["correct"] * 10 // search.results["shown"]  # in integers, so that 3 of 10 is in the fourth
    counts = np.bincount(np.minimum(tenth, 9), minlength=10)
    for i, count in enumerate(counts):
        yield {AT_LEAST: i / 10, BELOW: (i + 1) / 10, N_VISITED: count}


def _searches(store: Store, query: str | None) -> list[Search]:
    """The stored searches that a query selects, sorted by name.

    A search whose arrays cannot be read is left out with a warning. Raises FcaError if no search is left.
    """
    all_rows = readable_rows(store, query)  # of all tasks: the query is checked, but selects no rows yet
    search_rows = apply_query(all_rows[all_rows["task"] == "search"], query).sort_values("run_id")

    searches = []
    for name, row in zip(_search_names(search_rows), records(search_rows), strict=True):
        try:
            searches.append(_read(store, name, row))
        except FcaError as error:
            log.warning("run %s is left out: %s", row["run_id"], error)
    require_rows(searches, "searches", total=len(all_rows), command="fca run task=search domain=dog")
    return sorted(searches, key=lambda search: search.name)


def _search_names(rows: pd.DataFrame) -> Sequence[str]:
    """A name for each search: its subject and model, and as many further fields as make all names differ.

    Further fields are, in this order: policy, number of visited subdomains, seed, run id.
    """
    if rows.empty:  # there may be no columns
        return []

    texts = rows.astype("string").fillna("?")
    texts = texts.assign(visits=texts.get(N_VISITED, "?") + " visited", seeded="seed " + texts["seed"])
    fields = [SUBJECT, MODEL, POLICY, "visits", "seeded", RUN_ID]
    for n_fields in range(2, len(fields) + 1):
        names = texts[fields[:n_fields]].agg(", ".join, axis="columns")
        if names.is_unique:
            break
    return names.tolist()


def _read(store: Store, name: str, row: Mapping[str, Any]) -> Search:
    """Load a stored search. Raises FcaError if its arrays are missing, or are not those of a search.

    The lengths of all arrays and the range of all indices are checked, as a store may come from another machine.

    name: the name of the search in tables.    row: its row in the store.
    """

    def read(array: str, n_lines: int | None = None) -> np.ndarray:
        """An array of the run; the store raises FcaError if its length is not n_lines."""
        return np.asarray(store.array(row["run_id"], array, n_lines))

    # the domain is JSON in an array of one text; `ravel` and `join` read an array of any shape without an error, and
    # `domain_of` raises FcaError for what is no domain
    domain = domain_of("".join(read("domain").ravel()))
    arrays = {"prompts": read("prompts", len(domain))}
    for index_array in ARRAYS:  # ARRAYS: array of indices -> the other arrays that have as many entries
        arrays[index_array] = read(index_array)
    for index_array, dependent_arrays in ARRAYS.items():
        for array in dependent_arrays:
            arrays[array] = read(array, len(arrays[index_array]))

    # arrays of indices, and the number of things that each points to
    ends = {
        "visited": len(domain),
        "image_visit": len(arrays["visited"]),
        "fresh_subdomain": len(domain),
        "gallery_image": len(arrays["image_visit"]),
    }
    invalid = [array for array, end in ends.items() if not ((arrays[array] >= 0) & (arrays[array] < end)).all()]
    try:
        rules = [dict(rule) for rule in json.loads("".join(read("rules").ravel()))]
    except (ValueError, TypeError):
        invalid.append("rules")
    # `shown` has the number of accepted images of each visit; a finished search has at least one in all. Without one,
    # the error reads "arrays = none"
    if invalid or not arrays["shown"].any():
        raise FcaError("arrays", ", ".join(invalid) or "none", "those of a search", "restore the run, or remove it")

    visits = (arrays["visited"], arrays["correct"], arrays["shown"])
    image_columns = {array.removeprefix("image_"): arrays[array] for array in ARRAYS["image_visit"]}
    images = pd.DataFrame({"subdomain": arrays["visited"][arrays["image_visit"]], **image_columns})

    second_images = images[images["accepted"] & (images["second"] >= 0)]  # -1: no second classifier predicted it
    second_results = by_subdomain(
        second_images["subdomain"].to_numpy(),
        second_images["second"].to_numpy(),
        np.ones(len(second_images), dtype=np.int64),  # the number of images: each entry is a single one
    )
    return Search(name, row, domain, rules, visits, by_subdomain(*visits), second_results, images, arrays)
