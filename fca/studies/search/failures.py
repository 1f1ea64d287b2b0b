"""Under which conditions a classifier fails, by the searches that ran (analysis=failure_search)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.report.pictures import ACROSS, data_uri, png_of
from fca.stats.intervals import NO_INTERVAL, UNKNOWN_ESTIMATE, wilson
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

ARRAYS = {
    "visited": ("correct", "shown"),
    "image_visit": ("image_accepted", "image_correct", "image_p", "image_score", "image_second"),
    "fresh_subdomain": ("fresh_correct", "fresh_shown", "fresh_rule"),
    "gallery_image": ("gallery",),
}
PARTS = ("bo", "gp_pairwise")  # policies of partial searches
ALL = "visited"
_ESTIMATES = {
    ALL: "visited subdomains",
    **{name: f"a part, visited by {name}" for name in PARTS},
    **{f"{name} model": f"all, as the model of {name} then expects" for name in PARTS},
}
_CAUSES = {
    "generator": "both classifiers fail and the filter's score is low: the image may not show the prompt",
    "condition": "both classifiers fail and the filter's score is not low",
    "classifier": "only this classifier fails",
    "undecided": "undecided",
}
_KINDS = {"failure": "not recognised", "success": "recognised", "rejected": "rejected by the filter"}

SEARCH = Column("search", str, "", "search", filters=True)
LOWEST = Column("lowest", float, ".1%", "accuracy of the subdomain (chosen as low, so below its true one)")
LOWEST_SHARED = Column("lowest_shared", int, ",.0f", "visited subdomains of this lowest accuracy")
CONDITIONS = Column("conditions", str, "", "attribute values")
RULE = Column("rule", str, "", "condition")
SKILL_OVER_MEAN = SKILL.with_format(
    "+.2f", "variance that the policy's model explains, cross-validated; 0: as the mean"
)
ESTIMATE = Column("estimate", str, "", "estimated from", _ESTIMATES)
VALUE = Column("value", str, "", "value")
OTHER = Column("other", str, "", "second attribute")
OTHER_VALUE = Column("other_value", str, "", "its value")
BIAS = Column("bias", float, "+.1%", "difference from the mean of all subdomains")
FRESH = Column("fresh", float, ".1%", "accuracy of fresh images")
FRESH_OUTSIDE = Column("fresh_outside", float, ".1%", "accuracy of fresh images outside all rules")
_VERDICTS = ("confirmed", "not confirmed", "undecided", "not tested")
CONFIRMED = Column("confirmed", str, "", "by fresh images", dict(zip(_VERDICTS, _VERDICTS, strict=True)))
FRESH_IMAGES = Column("fresh_images", int, ",.0f", "fresh images")
SECOND_ACCURACY = Column("second_accuracy", float, ".1%", "accuracy of the second classifier on the same images")
CAUSE = Column("cause", str, "", "whose failure", _CAUSES)
KIND = PICTURE_KIND.with_choices(_KINDS)
AGREEMENT_RHO = RHO.with_format("+.2f", "rank correlation of the accuracies of subdomains")
OVERLAP = Column("overlap", float, ".0%", "share of one's worst tenth that is in the other's")

_OF, PAPER = (SEARCH, RUN_ID), "Le Coz et al., 2024 (arXiv:2405.02332),"
_SCORE = Column("score", float, ".2f", "probability of the own prompt, by the filter")
HOURS = Column("hours", float, ".2f", "hours of drawing and predicting")
_NAMES = (DOMAIN, TARGET, SECOND, GENERATOR, FILTER, POLICY, WARNING)
_COSTS = (HOURS, MONEY, COVERING.with_format(".2f"))
_LOW = (CONDITIONS, *interval_columns(LOWEST), LOWEST_SHARED)
_FOUND = (*interval_columns(ACCEPTANCE), ACCURACY, *_LOW, *interval_columns(CLEAN_ACCURACY), SKILL_OVER_MEAN)
_RUN = (*_OF, SUBJECT, MODEL, *_NAMES, SEED, N_VISITED, N_SUBDOMAINS, N_DRAWN, *_FOUND, *_COSTS)
_INSIDE = (N_VISITED, N_SUBDOMAINS, ACCURACY, Column("outside", float, ".1%", "accuracy outside all rules"))
_RULE = (
    *_OF,
    SUBJECT,
    RULE,
    *_INSIDE,
    *interval_columns(FRESH),
    *interval_columns(FRESH_OUTSIDE),
    FRESH_IMAGES,
    CONFIRMED,
)
_VALUES = (*_OF, ESTIMATE, ATTRIBUTE, VALUE, *interval_columns(ACCURACY), N_VISITED, BIAS)
_PAIRS = (*_OF, ESTIMATE, ATTRIBUTE, OTHER, VALUE, OTHER_VALUE, *interval_columns(ACCURACY), N_VISITED, BIAS)
_CAUSE = (
    *_OF,
    CONDITIONS,
    *interval_columns(LOWEST),
    *interval_columns(SECOND_ACCURACY),
    *interval_columns(ACCEPTANCE),
    _SCORE,
    CAUSE,
)
_BOTH = (
    *interval_columns(AGREEMENT_RHO),
    *interval_columns(OVERLAP),
    Column("chance", float, ".0%", "overlap by chance"),
)
_AGREE = (*_OF, Column("compared", str, "", "compared with"), N_VISITED, *_BOTH)
_BIN = (*_OF, Column("at_least", float, ".0%", "accuracy from"), Column("below", float, ".0%", "to"), N_VISITED)
_SHOWN = (Column("prompt", str, "", "prompt"), Column("p_target", float, ".2f", "probability of the target"), _SCORE)
_PICTURE = (*_OF, KIND, RANK, ROW, COLUMN, THUMBNAIL, *_SHOWN)

RUNS = TableSpec("search_runs", "What did each search visit, and where is accuracy lowest?", f"{PAPER} section 4", _RUN)
RULES = TableSpec("search_rules", "Which few conditions describe the failures?", f"own, to {PAPER} section 4.4", _RULE)
VALUES = TableSpec("search_values", "Which values make it fail?", f"{PAPER} averages by attribute value", _VALUES)
PAIRS = TableSpec("search_pairs", "Which pairs of values do?", f"{PAPER} heat map of weather and location", _PAIRS)
CAUSES = TableSpec("search_causes", "Does the classifier fail, or the generator?", f"own, to {PAPER} limits", _CAUSE)
AGREES = TableSpec("search_agreement", "Do two fail under the same conditions?", f"own, to {PAPER} section 4.4", _AGREE)
BINS = TableSpec("search_accuracies", "How accurate are visited subdomains?", f"{PAPER} histogram", _BIN)
GALLERY = TableSpec("search_gallery", "What do failures look like?", f"{PAPER} samples and prompts", _PICTURE)
METHOD = {
    ACCURACY: "every subdomain counts the same; Student's interval over subdomains, which were drawn with their images",
    RULE: "greedy subgroup discovery at 5 % for all candidates together: fca.studies.search.stats.explain.find_rules",
    FRESH: "share of fresh images, each subdomain weighted by the independent images that its images are worth "
    "(effective_images); interval of Korn and Graubard over subdomains, too short where few of them are drawn and most "
    "are right everywhere: fca.studies.search.stats.counts.share_with_interval",
    CONFIRMED: "fresh images of the condition are recognised less often than those outside all rules (one-sided p up "
    "to 0.025, over subdomains by t, over images by Fisher's test and, between uneven sides, by permuting subdomains: "
    "fca.studies.search.stats.counts.p_lower); undecided with a single fresh subdomain inside or outside, and "
    "between uneven sides of so few that these can be dealt in less than 20 ways (2 and 2, 3 or 4): then none could be "
    "confirmed",
    LOWEST: "Wilson's interval; left out where several subdomains share the lowest accuracy with different numbers of "
    "images",
    CAUSE: "of the lowest tenth of visited subdomains. A classifier fails where its Wilson interval is below its mean "
    "over visited subdomains; only this one does where the second does not, with an interval above that of this one. "
    "A score, the mean of all images drawn, is low below the first quarter of visited subdomains. All else: undecided",
    OVERLAP: "of the subdomains that both visited; intervals over them. Two searches: one domain, two models",
}
log = logging.getLogger(__name__)


class Search(NamedTuple):
    """A search that ran.

    visits: visited, correct, shown.    images: a line for each image drawn.    arrays: all that the run stored.
    first, second: results of the two classifiers by subdomain, see `by_subdomain`; the second's on accepted images.
    """

    name: str
    row: Mapping[str, Any]
    domain: Domain
    rules: list[dict[str, Any]]
    visits: tuple[np.ndarray, np.ndarray, np.ndarray]
    first: pd.DataFrame
    second: pd.DataFrame
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
        """Its tables. Raises FcaError without searches, and for a pair that is none of a domain's attributes."""
        searches = _searches(store, self.query)
        lines_of_tables: list[list[Any]] = [[] for _ in self.tables]
        for search in searches:
            means_of_values, means_of_pairs = self._means(search)
            lines_of_search = (
                _runs(search),
                _rules(search),
                means_of_values,
                means_of_pairs,
                _causes(search),
                self._agreements(search, searches),
                _bins(search),
                self._gallery(search),
            )
            for spec, lines, new_lines in zip(self.tables, lines_of_tables, lines_of_search, strict=True):
                for values in new_lines:
                    line = (search.name, search.row[RUN_ID], *values)
                    lines.append(dict(zip(spec.columns, line, strict=True)))
        run_ids = [search.row[RUN_ID] for search in searches]
        return filled(self.tables, lines_of_tables, asdict(self) | METHOD, run_ids)

    def _means(self, search: Search) -> tuple[list[Any], list[Any]]:
        """By value and by pair, of all visited subdomains; if that is all, also of a part, and by this part's model."""
        by_value = value_means(search.domain, *search.visits)
        by_pair = pair_means(search.domain, *search.visits)
        strongest = by_pair.sort_values("effect", ascending=False)[[ATTRIBUTE, OTHER]].head(1).to_numpy().ravel()
        pair = self.pair or strongest
        for name in pair:
            check_choice("analysis.pair", name, search.domain.attributes, "take two of these, or narrow query=...")
        is_of_pair = by_pair[[ATTRIBUTE, OTHER]].isin(pair).all(axis=1)

        value_lines: list[Any] = []
        pair_lines: list[Any] = []
        for name, values, pairs in self._estimates(search, by_value, by_pair):
            value_bias = np.nan if name == ALL else values["accuracy"] - by_value["accuracy"]
            pair_bias = np.nan if name == ALL else pairs["accuracy"] - by_pair["accuracy"]
            # the last column is the effect, in whose place the bias stands
            value_lines += [(name, *line) for line in values.assign(effect=value_bias).itertuples(index=False)]
            with_bias = pairs.assign(effect=pair_bias)[is_of_pair]
            pair_lines += [(name, *line) for line in with_bias.itertuples(index=False)]
        return value_lines, pair_lines

    def _estimates(
        self, search: Search, by_value: pd.DataFrame, by_pair: pd.DataFrame
    ) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """Means by value and by pair: of all, of the parts that partial searches visit, and as their models expect."""
        yield ALL, by_value, by_pair
        domain = search.domain
        is_complete = len(np.unique(search.visits[0])) == len(domain)
        if not is_complete or self.partial >= len(domain):
            return

        # The table of all images, on which partial searches are replayed
        accepted = search.images[search.images["accepted"]]
        number = accepted.groupby("subdomain").cumcount()
        right = np.full((len(domain), number.max() + 1), -1, np.int8)
        right[accepted["subdomain"], number] = accepted["correct"]

        for name in PARTS:
            part = replay(domain, right, name, self.seed, (right.shape[1],), self.partial)
            yield name, value_means(domain, *part), pair_means(domain, *part)

            policy: Any = make_policy(name, domain, self.seed)
            expected = policy.predict(*part).mean.clip(0, 1)  # a linear model may leave the range
            yield f"{name} model", _expected(domain, 1, by_value, expected), _expected(domain, 2, by_pair, expected)

    def _agreements(self, search: Search, searches: list[Search]) -> Iterator[Any]:
        """With the second classifier, and with the searches after it of another model on the same domain."""
        compared = {f"{search.row.get('second')}, on the same images": search.second}
        for later in searches[searches.index(search) + 1 :]:
            is_same_domain = later.row["fingerprint"] == search.row["fingerprint"]
            if is_same_domain and later.row[MODEL] != search.row[MODEL]:
                compared[later.name] = later.first

        for name, subdomains in compared.items():
            joined = search.first.join(subdomains.add_suffix("_2"), how="inner")
            if len(joined) > 1:
                accuracy = joined["accuracy"].to_numpy()
                rho, overlap, chance = agreement(accuracy, joined["accuracy_2"].to_numpy(), self.seed)
                yield name, len(joined), *rho, *overlap, chance

    def _gallery(self, search: Search) -> Iterator[Any]:
        """The pictures of each kind, spread over those that are stored."""
        images = search.images.iloc[search.arrays["gallery_image"]].reset_index(drop=True)
        kinds = np.where(~images["accepted"], "rejected", np.where(images["correct"], "success", "failure"))
        for kind in _KINDS:
            stored = np.flatnonzero(kinds == kind)
            n_pictures = min(self.shown, len(stored))
            spread = stored[np.linspace(0, len(stored) - 1, n_pictures).astype(int)]
            for rank, (picture, image) in enumerate(images.loc[spread].iterrows()):
                row, column = divmod(rank, ACROSS)
                uri = data_uri(png_of(search.arrays["gallery"][picture]))
                prompt = search.arrays["prompts"][image["subdomain"]]
                yield kind, rank + 1, row, column, uri, prompt, image["p"], image["score"]


def _expected(domain: Domain, strength: int, means: pd.DataFrame, expected: np.ndarray) -> pd.DataFrame:
    """The means with the accuracy that a model expects of all subdomains of each line, which has no interval."""
    accuracies = [expected @ cells / cells.sum(axis=0) for _, cells in domain.indicators(strength)]
    return means.assign(accuracy=np.concatenate(accuracies), low=np.nan, high=np.nan)


def _share(correct: Any, n: Any) -> tuple[float, float, float]:
    """A share with Wilson's interval; NaN of nothing or of a missing number."""
    if not n > 0:
        return UNKNOWN_ESTIMATE
    return correct / n, *wilson(int(correct), int(n))


def _conditions(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _runs(search: Search) -> Iterator[Any]:
    """The line of a search."""
    is_lowest = search.first["accuracy"] == search.first["accuracy"].min()
    lowest = search.first[is_lowest]
    first = lowest.iloc[0]
    lowest_share = _share(first["correct"], first["shown"])
    if (lowest["shown"] != first["shown"]).any():  # each has an interval of its own
        lowest_share = (lowest_share[0], *NO_INTERVAL)

    accepted = search.arrays["image_accepted"]
    line: dict[str, Any] = {
        **search.row,
        **dict(zip(interval_columns(ACCEPTANCE), _share(accepted.sum(), len(accepted)), strict=True)),
        **dict(zip(interval_columns(LOWEST), lowest_share, strict=True)),
        CONDITIONS: _conditions(search.domain.values(int(lowest.index[0]))),
        HOURS: search.row.get("gpu_s", np.nan) / 3600,
        ACCURACY: search.first["accuracy"].mean(),
        LOWEST_SHARED: len(lowest),
    }
    yield [line.get(name) for name in _RUN[2:]]


def _rules(search: Search) -> Iterator[Any]:
    """A line for each rule: accuracy inside and outside all rules, on the visits and on fresh images."""
    subdomains = search.first
    is_member = np.array([members(search.domain, rule) for rule in search.rules])  # rules x subdomains
    is_outside: Any = ~is_member.any(axis=0)

    fresh = [search.arrays[f"fresh_{name}"] for name in ("subdomain", "correct", "shown")]
    fresh_rule = search.arrays["fresh_rule"]
    fresh_outside = by_subdomain(*(counts[fresh_rule == -1] for counts in fresh))
    share_outside = share_with_interval(*_counts(fresh_outside))

    for number, (rule, is_inside) in enumerate(zip(search.rules, is_member, strict=True)):
        fresh_inside = by_subdomain(*(counts[fresh_rule == number] for counts in fresh))
        yield (
            search.row[SUBJECT],
            _conditions(rule),
            is_inside[subdomains.index].sum(),
            is_inside.sum(),
            subdomains["accuracy"][is_inside[subdomains.index]].mean(),
            subdomains["accuracy"][is_outside[subdomains.index]].mean(),
            *share_with_interval(*_counts(fresh_inside)),
            *share_outside,
            fresh_inside["shown"].sum(),
            _verdict(fresh_inside, fresh_outside),
        )


def _verdict(inside: pd.DataFrame, outside: pd.DataFrame) -> str:
    """Whether fresh images confirm a rule."""
    if inside.empty:
        return "not tested"
    p = _p_value(inside, outside)
    if np.isnan(p):
        return "undecided"
    return "not confirmed" if p > CONFIRMING else "confirmed"


def _counts(subdomains: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return subdomains["correct"].to_numpy(), subdomains["shown"].to_numpy()


def _p_value(inside: pd.DataFrame, outside: pd.DataFrame) -> float:
    """One-sided p-value of a lower accuracy inside; NaN where there is no test."""
    correct, n_images = _counts(pd.concat([inside, outside]))
    return p_lower(correct, n_images, np.arange(len(n_images)) < len(inside))


def _causes(search: Search) -> Iterator[Any]:
    """Whose failure the lowest tenth of the visited subdomains are, as METHOD says."""
    first = search.first
    second = search.second
    by_image = search.images.groupby("subdomain")
    drawn = by_image["accepted"].agg(["sum", "size"]).assign(score=by_image["score"].mean())
    low_score = drawn["score"].quantile(0.25)
    first_mean = first["accuracy"].mean()
    second_mean = second["accuracy"].mean()

    is_worst = worst(first["accuracy"].to_numpy())
    lowest = first[is_worst].join(second.add_suffix("_2")).join(drawn)
    for line in records(lowest.reset_index(names="subdomain")):
        accuracy = _share(line["correct"], line["shown"])
        second_accuracy = _share(line["correct_2"], line["shown_2"])
        accepted = _share(line["sum"], line["size"])
        _, _, high = accuracy
        _, second_low, second_high = second_accuracy

        cause = "undecided"
        if high < first_mean:
            if second_high < second_mean and not np.isnan(line["score"]):
                cause = "generator" if line["score"] < low_score else "condition"
            elif second_high >= second_mean and second_low > high:
                cause = "classifier"
        conditions = _conditions(search.domain.values(line["subdomain"]))
        yield conditions, *accuracy, *second_accuracy, *accepted, line["score"], cause


def _bins(search: Search) -> Iterator[Any]:
    """How many visited subdomains have an accuracy in each tenth."""
    tenth = np.minimum(search.first["correct"] * 10 // search.first["shown"], 9)
    for i, n in enumerate(np.bincount(tenth, minlength=10)):
        yield i / 10, (i + 1) / 10, n


def _searches(store: Store, query: str | None) -> list[Search]:
    """Those that can be read, by name; the others are left out with a warning."""
    rows = readable_rows(store, query)
    rows_of_searches = apply_query(rows[rows["task"] == "search"], query).sort_values("run_id")
    names = _names(rows_of_searches) if len(rows_of_searches) else []
    searches = []
    for name, row in zip(names, records(rows_of_searches), strict=True):
        try:
            searches.append(_read(store, name, row))
        except FcaError as error:
            log.warning("run %s is left out: %s", row["run_id"], error)
    require_rows(searches, "searches", len(rows), "fca run task=search domain=dog")
    return sorted(searches, key=lambda search: search.name)


def _names(searches: pd.DataFrame) -> list[str]:
    """A name for each search: subject and model, and as many further fields as make them unique."""
    texts = searches.astype("string").fillna("?")
    texts = texts.assign(visits=texts.get(N_VISITED, "?") + " visited", seeded="seed " + texts["seed"])
    fields = [SUBJECT, MODEL, POLICY, "visits", "seeded", RUN_ID]
    names = pd.Series(dtype="str")
    for n_fields in range(2, len(fields) + 1):
        names = texts[fields[:n_fields]].agg(", ".join, axis="columns")
        if names.is_unique:
            break
    return names.tolist()


def _read(store: Store, name: str, row: Mapping[str, Any]) -> Search:
    """A stored search. Raises FcaError for arrays that are not those of a search."""

    def read(array: str, lines: int | None = None) -> np.ndarray:
        return np.asarray(store.array(row["run_id"], array, lines))

    domain = domain_of("".join(read("domain").ravel()))
    arrays = {"prompts": read("prompts", len(domain))}
    for first_name, further_names in ARRAYS.items():
        arrays[first_name] = read(first_name)
        for further_name in further_names:
            arrays[further_name] = read(further_name, len(arrays[first_name]))

    # Positions must be inside of what they point to
    limits = {
        "visited": len(domain),
        "image_visit": len(arrays["visited"]),
        "fresh_subdomain": len(domain),
        "gallery_image": len(arrays["image_visit"]),
    }
    damaged = []
    for array, limit in limits.items():
        is_inside = (arrays[array] >= 0) & (arrays[array] < limit)
        if not is_inside.all():
            damaged.append(array)
    try:
        rules = [dict(rule) for rule in json.loads("".join(read("rules").ravel()))]
    except (ValueError, TypeError):
        damaged.append("rules")
    if damaged or not arrays["shown"].any():
        raise FcaError("arrays", ", ".join(damaged) or "none", "those of a search", "restore the run, or remove it")

    visits = (arrays["visited"], arrays["correct"], arrays["shown"])
    images = pd.DataFrame({"subdomain": arrays["visited"][arrays["image_visit"]]})
    for array in ARRAYS["image_visit"]:
        images[array.removeprefix("image_")] = arrays[array]

    is_seen_by_second = images["accepted"] & (images["second"] >= 0)
    second_visits = images[is_seen_by_second]
    second = by_subdomain(
        second_visits["subdomain"].to_numpy(),
        second_visits["second"].to_numpy(),
        np.ones(len(second_visits), dtype=np.int64),
    )
    return Search(name, row, domain, rules, visits, by_subdomain(*visits), second, images, arrays)
