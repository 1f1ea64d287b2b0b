"""Under which conditions a classifier fails, by the searches that ran (analysis=failure_search)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.report.pictures import ACROSS, data_uri, png_of
from fca.stats.intervals import NO_INTERVAL, UNKNOWN, wilson
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
_ESTIMATES = {ALL: "visited subdomains"}
_ESTIMATES |= {name: f"a part, visited by {name}" for name in PARTS}
_ESTIMATES |= {f"{name} model": f"all, as the model of {name} then expects" for name in PARTS}
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
CONDITIONS, RULE = Column("conditions", str, "", "attribute values"), Column("rule", str, "", "condition")
SKILL_OVER_MEAN = SKILL.with_format(
    "+.2f", "variance that the policy's model explains, cross-validated; 0: as the mean"
)
ESTIMATE = Column("estimate", str, "", "estimated from", _ESTIMATES)
VALUE = Column("value", str, "", "value")
OTHER, OTHER_VALUE = Column("other", str, "", "second attribute"), Column("other_value", str, "", "its value")
BIAS = Column("bias", float, "+.1%", "difference from the mean of all subdomains")
FRESH, FRESH_OUTSIDE = (Column(f"fresh{of}", float, ".1%", f"accuracy of fresh images{of}") for of in ("", "_outside"))
_VERDICTS = ("confirmed", "not confirmed", "undecided", "not tested")
CONFIRMED = Column("confirmed", str, "", "by fresh images", dict(zip(_VERDICTS, _VERDICTS, strict=True)))
FRESH_IMAGES = Column("fresh_images", int, ",.0f", "fresh images")
SECOND_ACCURACY = Column("second_accuracy", float, ".1%", "accuracy of the second classifier on the same images")
CAUSE, KIND = Column("cause", str, "", "whose failure", _CAUSES), PICTURE_KIND.with_choices(_KINDS)
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
    """A search that ran.    visits: visited, correct, shown.    images: a line an image drawn.    of: all arrays.

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
    of: Arrays


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
        found = _searches(store, self.query)
        lines: list[list[Any]] = [[] for _ in self.tables]
        for one in found:
            made = (_runs(one), _rules(one), *self._means(one), _causes(one), self._agreements(one, found), _bins(one))
            for spec, of, part in zip(self.tables, lines, (*made, self._gallery(one)), strict=True):
                of += [dict(zip(spec.columns, (one.name, one.row[RUN_ID], *line), strict=True)) for line in part]
        return filled(self.tables, lines, asdict(self) | METHOD, [one.row[RUN_ID] for one in found])

    def _means(self, one: Search) -> tuple[list[Any], list[Any]]:
        """By value and by pair, of all visited subdomains; if that is all, also of a part, and by this part's model."""
        full = value_means(one.domain, *one.visits), pair_means(one.domain, *one.visits)
        pair = (
            self.pair or full[1].sort_values("effect", ascending=False)[[ATTRIBUTE, OTHER]].head(1).to_numpy().ravel()
        )
        for name in pair:
            check_choice("analysis.pair", name, one.domain.attributes, "take two of these, or narrow query=...")
        chosen = full[1][[ATTRIBUTE, OTHER]].isin(pair).all(axis=1)
        found: tuple[list[Any], list[Any]] = ([], [])
        for name, frames in self._estimates(one, full):
            for lines, of, every, kept in zip(found, frames, full, (slice(None), chosen), strict=True):
                of = of.assign(effect=np.nan if name == ALL else of["accuracy"] - every["accuracy"])  # now the bias
                lines += [(name, *line) for line in of[kept].itertuples(index=False)]
        return found

    def _estimates(self, one: Search, full: tuple[pd.DataFrame, ...]) -> Iterator[tuple[str, Sequence[pd.DataFrame]]]:
        yield ALL, full
        if len(np.unique(one.visits[0])) < len(one.domain) or self.partial >= len(one.domain):
            return
        images = one.images[one.images["accepted"]]
        place = images.groupby("subdomain").cumcount()
        right = np.full((len(one.domain), place.max() + 1), -1, np.int8)
        right[images["subdomain"], place] = images["correct"]
        for name in PARTS:
            part = replay(one.domain, right, name, self.seed, (right.shape[1],), self.partial)
            yield name, (value_means(one.domain, *part), pair_means(one.domain, *part))
            policy: Any = make_policy(name, one.domain, self.seed)
            mean = policy.predict(*part).mean.clip(0, 1)  # a linear model may leave the range
            cells = ([mean @ has / has.sum(axis=0) for _, has in one.domain.indicators(n)] for n in (1, 2))
            means = (full[at].assign(accuracy=np.concatenate(of)) for at, of in enumerate(cells))
            yield f"{name} model", [frame.assign(low=np.nan, high=np.nan) for frame in means]

    def _agreements(self, one: Search, found: list[Search]) -> Iterator[Any]:
        """With the second classifier, and with the searches after it of another model on the same domain."""
        others = {f"{one.row.get('second')}, on the same images": one.second}
        for other in found[found.index(one) + 1 :]:
            if other.row["fingerprint"] == one.row["fingerprint"] and other.row[MODEL] != one.row[MODEL]:
                others[other.name] = other.first
        for name, of in others.items():
            both = one.first.join(of.add_suffix("_2"), how="inner")
            if len(both) > 1:
                rho, overlap, chance = agreement(both["accuracy"].to_numpy(), both["accuracy_2"].to_numpy(), self.seed)
                yield name, len(both), *rho, *overlap, chance

    def _gallery(self, one: Search) -> Iterator[Any]:
        images = one.images.iloc[one.of["gallery_image"]].reset_index(drop=True)
        kinds = np.where(~images["accepted"], "rejected", np.where(images["correct"], "success", "failure"))
        for kind in _KINDS:
            places = np.flatnonzero(kinds == kind)
            spread = places[np.linspace(0, len(places) - 1, min(self.shown, len(places))).astype(int)]
            for rank, (at, of) in enumerate(images.loc[spread].iterrows()):
                place, uri = divmod(rank, ACROSS), data_uri(png_of(one.of["gallery"][at]))
                yield kind, rank + 1, *place, uri, one.of["prompts"][of["subdomain"]], of["p"], of["score"]


def _share(correct: Any, n: Any) -> tuple[float, float, float]:
    """A share with Wilson's interval; NaN of nothing or of a missing number."""
    return (correct / n, *wilson(int(correct), int(n))) if n > 0 else UNKNOWN


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _runs(one: Search) -> Iterator[Any]:
    accepted = one.of["image_accepted"]
    is_lowest = one.first["accuracy"] == one.first["accuracy"].min()
    lowest = one.first[is_lowest]
    first = lowest.iloc[0]

    lowest_share = _share(first["correct"], first["shown"])
    if (lowest["shown"] != first["shown"]).any():  # each has an interval of its own
        lowest_share = (lowest_share[0], *NO_INTERVAL)

    values = *_share(accepted.sum(), len(accepted)), *lowest_share
    line = dict(one.row) | dict(zip((*interval_columns(ACCEPTANCE), *interval_columns(LOWEST)), values, strict=True))
    line |= {CONDITIONS: _words(one.domain.values(int(lowest.index[0]))), HOURS: one.row.get("gpu_s", np.nan) / 3600}
    line[ACCURACY] = one.first["accuracy"].mean()
    line[LOWEST_SHARED] = len(lowest)
    yield [line.get(name) for name in _RUN[2:]]


def _rules(one: Search) -> Iterator[Any]:
    of, fresh = one.first, [one.of[f"fresh_{name}"] for name in ("subdomain", "correct", "shown")]
    has = np.array([members(one.domain, rule) for rule in one.rules])
    free: Any = ~has.any(axis=0)
    parts = [by_subdomain(*(counts[one.of["fresh_rule"] == at] for counts in fresh)) for at in (*range(len(has)), -1)]
    *inside, outside = (share_with_interval(*_counts(part)) for part in parts)
    for rule, valid, part, share in zip(one.rules, has, parts, inside, strict=False):
        p = _p_value(part, parts[-1])
        verdict = _VERDICTS[3 if part.empty else 2 if np.isnan(p) else int(p > CONFIRMING)]
        means = (of["accuracy"][where[of.index]].mean() for where in (valid, free))
        of_rule = one.row[SUBJECT], _words(rule), valid[of.index].sum(), valid.sum()
        yield *of_rule, *means, *share, *outside, part["shown"].sum(), verdict


def _counts(part: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return part["correct"].to_numpy(), part["shown"].to_numpy()


def _p_value(inside: pd.DataFrame, outside: pd.DataFrame) -> float:
    """That accuracy is not lower inside; NaN where there is no test."""
    correct, shown = _counts(pd.concat([inside, outside]))
    return p_lower(correct, shown, np.arange(len(shown)) < len(inside))


def _causes(one: Search) -> Iterator[Any]:
    of, second, images = one.first, one.second, one.images.groupby("subdomain")
    drawn = images["accepted"].agg(["sum", "size"]).assign(score=images["score"].mean())
    low, means = drawn["score"].quantile(0.25), (of["accuracy"].mean(), second["accuracy"].mean())
    both = of[worst(of["accuracy"].to_numpy())].join(second.add_suffix("_2")).join(drawn)
    for line in records(both.reset_index(names="subdomain")):
        first, other = _share(line["correct"], line["shown"]), _share(line["correct_2"], line["shown_2"])
        fails, accepted, cause = first[2] < means[0], _share(line["sum"], line["size"]), "undecided"
        if fails and other[2] < means[1] and not np.isnan(line["score"]):
            cause = "generator" if line["score"] < low else "condition"
        elif fails and other[2] >= means[1] and other[1] > first[2]:
            cause = "classifier"
        yield _words(one.domain.values(line["subdomain"])), *first, *other, *accepted, line["score"], cause


def _bins(one: Search) -> Iterator[Any]:
    counts = np.bincount(np.minimum(one.first["correct"] * 10 // one.first["shown"], 9), minlength=10)
    yield from ((at / 10, (at + 1) / 10, n) for at, n in enumerate(counts))


def _searches(store: Store, query: str | None) -> list[Search]:
    """Those that can be read, by name; the others are left out with a warning."""
    rows = readable_rows(store, query)
    searches = apply_query(rows[rows["task"] == "search"], query).sort_values("run_id")
    texts, names = searches.astype("string").fillna("?"), pd.Series(dtype="str")
    texts = texts.assign(visits=texts.get(N_VISITED, "?") + " visited", seeded="seed " + texts["seed"])
    fields = [SUBJECT, MODEL, POLICY, "visits", "seeded", RUN_ID]
    for most in range(2, 7) if len(searches) else ():
        names = texts[fields[:most]].agg(", ".join, axis="columns")
        if names.is_unique:
            break
    found = []
    for name, row in zip(names, records(searches), strict=True):
        try:
            found.append(_read(store, name, row))
        except FcaError as error:
            log.warning("run %s is left out: %s", row["run_id"], error)
    require_rows(found, "searches", len(rows), "fca run task=search domain=dog")
    return sorted(found, key=lambda one: one.name)


def _read(store: Store, name: str, row: Mapping[str, Any]) -> Search:
    def read(array: str, lines: int | None = None) -> np.ndarray:
        return np.asarray(store.array(row["run_id"], array, lines))

    domain = domain_of("".join(read("domain").ravel()))
    of = {"prompts": read("prompts", len(domain))} | {first: read(first) for first in ARRAYS}
    of |= {other: read(other, len(of[first])) for first, others in ARRAYS.items() for other in others}
    ends = {"visited": len(domain), "image_visit": len(of["visited"]), "fresh_subdomain": len(domain)}
    ends["gallery_image"] = len(of["image_visit"])
    outside = [array for array, end in ends.items() if not ((of[array] >= 0) & (of[array] < end)).all()]
    try:
        rules = [dict(rule) for rule in json.loads("".join(read("rules").ravel()))]
    except (ValueError, TypeError):
        outside.append("rules")
    if outside or not of["shown"].any():
        raise FcaError("arrays", ", ".join(outside) or "none", "those of a search", "restore the run, or remove it")
    visits, at = (of["visited"], of["correct"], of["shown"]), of["visited"][of["image_visit"]]
    images = pd.DataFrame({"subdomain": at} | {of_image[6:]: of[of_image] for of_image in ARRAYS["image_visit"]})
    seen = (
        images[images["accepted"] & (images["second"] >= 0)].assign(one=1)[["subdomain", "second", "one"]].to_numpy().T
    )
    return Search(name, row, domain, rules, visits, by_subdomain(*visits), by_subdomain(*seen), images, of)
