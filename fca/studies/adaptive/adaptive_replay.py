"""What would adaptive tests of a part of the images find? Tests replayed on stored predictions for all of them.

Each network takes every kind of test, with an item bank of other networks' responses where the test needs one. Tables:
squared errors by model (Huang et al. 2025, table 2), over models against Static, and by the share of images evaluated;
the images that two-stage tests evaluate by level (table 1), where sessions go after their first round, and a few
sessions image by image (figure 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from fca.allowed import Allowed, Seed
from fca.progress import track
from fca.stats.ask import ask_until_done
from fca.stats.correlation import kendall
from fca.stats.intervals import LOG, UNKNOWN, jackknife_interval
from fca.store import Store
from fca.studies.adaptive import stats as adaptive
from fca.studies.adaptive.adaptive_tests import BUDGET, ESTIMATE, ESTIMATOR, POLICY, SHARE, TARGET, TRUTH, WARNING
from fca.studies.adaptive.exposure import ADAPTIVE_EXPOSURE, FEWEST, METHOD, REPEATS, Shown, exposure_line, shown_by
from fca.studies.adaptive.pools import Answers, answers_of
from fca.studies.adaptive.stats import MAPPINGS, POINTS, GreTwoStage, Policy, Pool, Rounds, replay, start_policy
from fca.studies.adaptive.stats.policies import check_budget
from fca.studies.irt.not_estimable import log_not_estimable, priors_noted
from fca.studies.irt.stats import ItemBank, check_responses, fit_irt
from fca.studies.irt.stats.model import NAMES
from fca.studies.progressive.levels import LEVEL, PAPER, SESSIONS, LevelProtocol, Line, cells, pool_of
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import COVERAGE, DATASET, IMAGE_ID, MODEL, MODELS, TOP1, TableSpec, filled
from fca.types import Column, FcaError, Table, with_interval

BASE = ("static_k", "session_mean")
DEFAULT = ("optimal_allocation", "stratified")
DEFAULT_OF_BANK = ("defensive_irt", "regression")
OF_BANKS = (  # those with an item bank, and what random draws gain by the same bank
    *(("random", "regression"), DEFAULT_OF_BANK),
    *(("random", "p_irt"), ("fisher_cat", "p_irt")),
)
METHODS = (  # every policy with the estimator that is right for it
    BASE,
    ("random", "pooled"),
    ("gre_two_stage", "mixed_logit"),
    DEFAULT,
    *OF_BANKS,
)
BASE_WITHOUT, DEFAULT_WITHOUT = ("random", "hypergeometric"), ("proportional", "hypergeometric")
WITHOUT_LEVELS = (BASE_WITHOUT, DEFAULT_WITHOUT, *OF_BANKS)  # the same of images without levels
CURVES = (*METHODS, *WITHOUT_LEVELS)
BESIDE_OF_BANK = ("neyman_irt", "regression")
BESIDE = (  # the first two are biased
    *(("gre_two_stage", "session_mean"), ("gre_two_stage", "pooled")),
    *(("optimal_allocation", "mixed_logit"), BESIDE_OF_BANK),
)
RANDOM_DRAWS = tuple(method for method in OF_BANKS if method[0] == "random")
SAME_BANK_NAME = "random draws, same bank ({})"
OF_BANK = ("regression", "difference", "p_irt")  # estimators that need an item bank
FOLDS = 10  # of networks; one in each where they are fewer
SHOWN_MODELS, SHOWN_SESSIONS = 6, 6  # drawn one by one

MSE = Column("mse_pp2", float, ".2f", "squared error (squared % points)")
MSE_LOW, MSE_HIGH = (
    Column(f"mse_{end}", float, ".2f", f"squared error, {end}er end of the 95 % interval") for end in ("low", "high")
)
RATIO = Column("ratio", float, ".2f", "squared error over that of Static")
SAME_BANK = Column(
    "ratio_same_bank", float, ".2f", "squared error over that of random draws with the same bank and estimator"
)
BIAS = Column("bias_pp", float, "+.2f", "mean error in percentage points")
UNDEFINED = Column("undefined", int, ".0f", "tests without an estimate")
GROUPS = Column("groups", int, ".0f", "attributes")
RANK_TAU = Column("rank_tau", float, ".2f", "Kendall's tau of estimated and true order of the models")
MAPPING = Column("mapping", str, "", "mapping from points to the second round", {name: name for name in MAPPINGS})
FIRST = Column("first", float, ".2f", "images a session in the first round")
SECOND = Column("second", float, ".2f", "images a session in the second round")
EVALUATED = Column("asked", float, ".2f", "images a session, both rounds")
SESSION = Column("session", str, "", "class/attribute")
POINTS_OF_SESSION = Column("points", int, ".0f", "points after the first round")
OF_SESSIONS = SHARE.with_format(".1%", "share of the sessions")
NEXT = tuple(Column(f"next_{level}", float, ".2f", f"{level} images in the second round") for level in LEVELS)
RIGHT_FIRST = Column("right_first", float, ".1%", "right in the first round")
RIGHT_SECOND = Column("right_second", float, ".1%", "right in the second round")
WHOLE = TRUTH.with_format(".1%", "right of all the session's images")
PLACE = Column("place", int, ".0f", "image, in the order evaluated")
ROUND = Column("round", int, ".0f", "round")
RIGHT = Column("right", bool, "", "whether the prediction is right")

_TEST = (METHOD, POLICY, ESTIMATOR, TARGET, BUDGET, SHARE)
_MEASURES = (MSE, MSE_LOW, MSE_HIGH, *with_interval(RATIO))
_RATIOS = with_interval(SAME_BANK)
_OVERALL = (
    *(DATASET, *_TEST, *_MEASURES, *_RATIOS, BIAS, COVERAGE, UNDEFINED),
    *(*with_interval(RANK_TAU), MODELS, GROUPS, REPEATS, WARNING),
)
ADAPTIVE_ERRORS = TableSpec(
    "adaptive_errors",
    "How large is the error of a test of a part of the images, model by model?",
    f"{PAPER}, table 2",
    (
        *(DATASET, MODEL, *_TEST, TRUTH, ESTIMATE, *_MEASURES, *_RATIOS),
        *(BIAS, COVERAGE, UNDEFINED, GROUPS, REPEATS, WARNING),
    ),
)
ADAPTIVE_METHODS = TableSpec(
    "adaptive_methods",
    "How large is the error of each kind of test, against as many images drawn evenly?",
    f"{PAPER}, table 2",
    _OVERALL,
)
ADAPTIVE_CURVES = TableSpec(
    "adaptive_curves",
    "How large is the error of each kind of test, by the share of images that it evaluates?",
    f"of our own, after {PAPER}",
    _OVERALL,
)
ADAPTIVE_ASKED = TableSpec(
    "adaptive_asked",
    "Do tests of different models evaluate different images?",
    f"{PAPER}, table 1",
    (DATASET, MODEL, TOP1, MAPPING, LEVEL, FIRST, SECOND, EVALUATED, SESSIONS, REPEATS),
)
ADAPTIVE_TRAJECTORIES = TableSpec(
    "adaptive_trajectories",
    "Where do sessions go after their first round?",
    f"{PAPER}, figure 5",
    (DATASET, MODEL, TOP1, POINTS_OF_SESSION, SESSIONS, OF_SESSIONS, *NEXT, RIGHT_FIRST, RIGHT_SECOND, WHOLE),
)
ADAPTIVE_SESSIONS = TableSpec(
    "adaptive_sessions",
    "How does a single session go?",
    f"{PAPER}, figure 5",
    (DATASET, MODEL, TOP1, SESSION, POINTS_OF_SESSION, PLACE, ROUND, LEVEL, RIGHT, IMAGE_ID, WHOLE),
)
NOTES = {
    "truth": "accuracy and score of every attribute on all its images; the error of an estimate is its difference",
    "mse_pp2": "squared error in squared percentage points, mean over repeats, attributes and models; 95 %: "
    "jackknife over models and over attributes, each by itself, and Student's t on the logarithm; rather too wide, as "
    "what varies in both counts twice",
    "ratio": "mse_pp2 over that of Static at the same budget, left out together",
    "ratio_same_bank": "mse_pp2 over that of random draws with the same bank, estimator and budget, left out "
    "together: what the choice of the images adds to the bank",
    "bank": "2pl (or analysis.model) of the responses of other networks: those of the tested one, under any seed, are "
    "never in it; ten folds of networks at most",
    "coverage": "share of 95 % intervals that contain the truth",
    "rank_tau": "of one repeat's tests, mean over repeats, as are the ends of its interval, which leaves out networks; "
    "ability_tau: the same of abilities, each as the accuracy that the model's bank expects of it",
    "exposure": "of an image: the share of the tests of all models and repeats that ask it",
    "sessions": "six of six models at most, at equal steps by points and by accuracy",
}

Cells = Float[np.ndarray, "models groups"]


class Setting(NamedTuple):
    """A kind of test: policy, estimator, and the share of the pool that it may evaluate."""

    policy: str
    estimator: str
    budget: float


class Banks(NamedTuple):
    """The item bank of each model, from other models' responses; none, and why, where those cannot be fitted.

    not_estimable: scales that the fit of any of them could not learn; see `IrtFit`.
    """

    of_model: tuple[ItemBank | None, ...]
    lacking: str | None
    not_estimable: tuple[str, ...] = ()


class Replayed(NamedTuple):
    """Tests as of `fca.studies.adaptive.stats.replay`, a line an adaptive_exposure, and the tests that could not be,
    with the reason.    not_estimable: scales that an item bank could not learn."""

    tests: pd.DataFrame
    exposure: pd.DataFrame
    left_out: list[str]
    not_estimable: tuple[str, ...]


class TwoStage(NamedTuple):
    """One two-stage test. round: 1 or 2 of every evaluated image, else 0; points: of every session after round one."""

    round: Int[np.ndarray, " items"]
    points: Int[np.ndarray, " sessions"]


@dataclass(frozen=True)
class AdaptiveReplay:
    """`analysis=adaptive_replay`; reads `predict` rows of full models, and files of responses.

    Of images with columns attribute and level; others are one group, read where files are named or no set has levels.
    """

    tables: ClassVar = (
        *(ADAPTIVE_ERRORS, ADAPTIVE_METHODS, ADAPTIVE_CURVES, ADAPTIVE_EXPOSURE),
        *(ADAPTIVE_ASKED, ADAPTIVE_TRAJECTORIES, ADAPTIVE_SESSIONS),
    )

    query: Query = None
    responses: Annotated[
        ResponseFiles,
        "files of responses, e.g. [answers.csv]: images without levels; each a data set, or more subjects of "
        "a stored one",
    ] = field(default_factory=list)
    protocol: LevelProtocol = "open"
    budget: Annotated[float, Allowed(above=0, most=1), "share of the images that a test may evaluate"] = 0.25
    budgets: Annotated[
        list[int | float], Allowed(above=0, most=1, filled=True), "shares of the images at which the curves have points"
    ] = field(default_factory=lambda: [0.08, 0.17, 0.25, 0.33, 0.5, 0.75])
    repeats: Annotated[int, Allowed(1), "tests of each kind and model"] = 3
    model: Annotated[str, Allowed(choices=NAMES), "of item responses, for policies with a bank"] = "2pl"
    seed: Annotated[Seed, "of the sessions and of random choices"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables adaptive_errors, adaptive_methods, adaptive_curves, adaptive_exposure, adaptive_asked,
        adaptive_trajectories and adaptive_sessions; the parameter `left_out` names the tests for which a pool is too
        small."""
        check_budget(self.budget)
        parts: dict[str, list[pd.DataFrame]] = {spec.name: [] for spec in self.tables}
        left_out: list[str] = []
        not_estimable: dict[str, tuple[str, ...]] = {}
        runs: set[str] = set()
        for one in answers_of(store, self.query, self.responses, self.protocol):
            pool = pool_of(one.items)
            wanted = settings(self.budget, self.budgets, levels=pool.has_levels)
            found = replays(one, pool, wanted, self.repeats, self.model, self.seed)
            left_out += found.left_out
            if found.not_estimable:
                not_estimable[f"{one.dataset}, item banks of other models"] = found.not_estimable
            runs |= set(one.runs)
            parts[ADAPTIVE_EXPOSURE.name].append(ADAPTIVE_EXPOSURE.frame(found.exposure.assign(dataset=one.dataset)))
            for spec, frame in self._frames(one, pool, found.tests):
                parts[spec.name].append(spec.frame(frame.assign(dataset=one.dataset)))
        lines: list[Any] = [pd.concat(found, ignore_index=True) if found else [] for found in parts.values()]
        parameters = {**asdict(self), **NOTES, "left_out": left_out, **priors_noted(not_estimable)}
        return filled(self.tables, lines, parameters, runs)

    def _frames(self, one: Answers, pool: Pool, tests: pd.DataFrame) -> Iterator[tuple[TableSpec, pd.DataFrame]]:
        """Of one data set; without the tables of two-stage tests where the pool is too small for these."""
        at_budget = (tests[BUDGET] == self.budget) | (tests[BUDGET] == 2 * self.budget) & is_base(tests)
        of_curves = [method in CURVES for method in zip(tests[POLICY], tests[ESTIMATOR], strict=True)]
        by_model = tests[at_budget].groupby(MODEL, sort=False)
        models = [overall(part, self.budget).assign(model=name) for name, part in by_model]
        yield ADAPTIVE_ERRORS, pd.concat(models, ignore_index=True).drop(columns=[*with_interval(RANK_TAU), MODELS])
        for spec, part in ((ADAPTIVE_METHODS, tests[at_budget]), (ADAPTIVE_CURVES, tests[of_curves])):
            yield spec, overall(part, self.budget).drop(columns=[TRUTH, ESTIMATE])
        if (tests.loc[tests[BUDGET] == self.budget, POLICY] == "gre_two_stage").any():
            yield ADAPTIVE_ASKED, evaluated_lines(one, pool, self.budget, self.repeats, self.seed)
            yield ADAPTIVE_TRAJECTORIES, trajectory_lines(one, pool, self.budget, self.seed)
            yield ADAPTIVE_SESSIONS, session_lines(one, pool, self.budget, self.seed)


def settings(budget: float, budgets: Iterable[int | float], levels: bool = True) -> list[Setting]:
    """Every method at the budget and at those of the curves; at the budget alone those of BESIDE, and the evenly drawn
    one with twice as many images."""
    methods, beside, base = (METHODS, BESIDE, BASE) if levels else (WITHOUT_LEVELS, (BESIDE_OF_BANK,), BASE_WITHOUT)
    others = sorted({*map(float, budgets)} - {float(budget)})
    every = [Setting(*method, share) for method in methods for share in (float(budget), *others)]  # never a repetition
    every += [Setting(*method, float(budget)) for method in beside]
    twice = Setting(*base, 2.0 * budget)
    return [*every, twice] if twice.budget <= 1 and twice not in every else every


def is_base(tests: pd.DataFrame) -> pd.Series:
    """Which tests are those that others are compared with: drawn evenly, as many of every level where there are any."""
    policy, estimator = BASE_WITHOUT
    return (tests[POLICY] == BASE[0]) | ((tests[POLICY] == policy) & (tests[ESTIMATOR] == estimator))


def replays(one: Answers, pool: Pool, tests: Sequence[Setting], repeats: int, model: str, seed: int) -> Replayed:
    """All tests of all models that the pool allows, and the others, each with its reason.

    Models by name; with columns network, policy, estimator, budget, method, share. Of two budgets that evaluate as many
    images it has only the first.
    """
    banks, truth = banks_of_others(one, model), np.array([pool.truth(right)[:, 0].mean() for right in one.correct])
    frames: list[pd.DataFrame] = []
    exposure: list[Line] = []
    left_out: list[str] = []
    done: set[tuple[object, ...]] = set()
    shown = track(tests, f"tests of {one.dataset}")
    for test in shown:
        refused = why_not(test, pool, banks)
        if refused is not None:
            left_out.append(f"{one.dataset}: {test.policy} at budget {test.budget:g}: {refused}")
            continue
        of_models = [_of_model(one, pool, test, banks, at, repeats, seed) for at in range(len(one.models))]
        frame = pd.concat(found for found, _ in of_models)
        size = frame["asked"].sum() / (len(one.models) * repeats * len(pool.targets))
        if (*test[:2], round(size)) in done:
            continue
        done.add((*test[:2], round(size)))
        about = {**test._asdict(), "method": name_of(test, pool), "share": size / pool.items}
        frames.append(frame.assign(**about))
        if test[:2] in CURVES and not any(
            line[POLICY] == test.policy and line[SHARE] == about["share"] for line in exposure
        ):
            line = exposure_line([shown for _, shown in of_models], truth, one.networks)
            exposure.append({**about, **line, MODELS: len(truth), REPEATS: repeats})
    # any pool is large enough for `random`
    return Replayed(pd.concat(frames, ignore_index=True), pd.DataFrame(exposure), left_out, banks.not_estimable)


def why_not(test: Setting, pool: Pool, banks: Banks) -> str | None:
    """The reason why a pool cannot be tested so, or None."""
    if test.estimator in OF_BANK and banks.lacking is not None:
        return banks.lacking
    try:
        start_policy(test.policy, pool, test.budget, banks.of_model[0])
    except FcaError as error:
        return str(error)
    return None


def banks_of_others(one: Answers, model: str) -> Banks:
    """Each model's bank is fitted on other networks, in ten folds at most; another seed makes no other network."""
    networks = one.networks
    names = sorted(set(networks))
    fold = [names.index(network) % min(FOLDS, len(names)) for network in networks]
    banks, not_estimable = dict[int, ItemBank](), dict[str, None]()
    for this in set(fold):
        others = one.correct[np.array(fold) != this].astype(np.float64)
        try:
            check_responses(others)
        except FcaError as error:
            return Banks((None,) * len(networks), f"no item bank from other models' responses: {error}")
        fit = fit_irt(others, model)
        banks[this] = fit.bank
        not_estimable |= dict.fromkeys(fit.not_estimable)
    log_not_estimable(f"{one.dataset}, item banks of other models", tuple(not_estimable))
    return Banks(tuple(banks[this] for this in fold), None, tuple(not_estimable))


def _of_model(
    one: Answers, pool: Pool, test: Setting, banks: Banks, at: int, repeats: int, seed: int
) -> tuple[pd.DataFrame, Shown]:
    """Tests of one model, with draws of its own, and what they asked."""
    started: list[Policy] = []

    def start(pool: Pool, budget: int | float, bank: ItemBank | None) -> Policy:
        started.append(start_policy(test.policy, pool, budget, bank))
        return started[-1]

    codes, bank = (pool.level if pool.has_levels else None, pool.session, pool.group), banks.of_model[at]
    found = replay(one.correct[[at]], *codes, start, *test[1:], bank, repeats, draws_of(seed, at))
    group = pool.group_names[found["group"].to_numpy(dtype=np.int64)]
    shown = shown_by([policy.record for policy in started], pool, bank)
    return found.assign(model=one.models[at], network=one.networks[at], group=group), shown


def draws_of(seed: int, at: int) -> int:
    """The seed of a model's draws: no two models share one."""
    return 100_000 * seed + at


def name_of(test: Setting, pool: Pool) -> str:
    """Static 3, or without levels the size of a simple random sample; gre_two_stage + mixed_logit.

    >>> from fca.studies.adaptive.stats import make_pool
    >>> codes = np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int)
    >>> name_of(Setting("static_k", "session_mean", 0.25), make_pool(*codes))
    'Static 3'
    """
    if test[:2] == BASE:
        return f"Static {round(test.budget * pool.items / pool.sizes.size)}"
    if test[:2] == BASE_WITHOUT:
        return f"random sample of {round(test.budget * pool.items):,}"
    if test.policy == "random" and test.estimator in OF_BANK:
        return SAME_BANK_NAME.format(test.estimator)
    return f"{test.policy} + {test.estimator}"


def overall(frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """One line a method, budget and target: squared error over the models and its ratio to Static at `budget` and, with
    a bank, to random draws with the same bank and estimator, with intervals over models and groups.

    frame: the tests, as of `replays`.
    """
    models, groups = frame[MODEL].nunique(), frame["group"].nunique()
    static = frame[is_base(frame) & (frame[BUDGET] == budget)]
    base: dict[Any, Cells] = {target: squared(part) for target, part in static.groupby(TARGET)}
    of_random = frame[(frame[POLICY] == "random") & frame[ESTIMATOR].isin(OF_BANK)]
    same_bank: dict[Any, Cells] = {
        key: squared(part) for key, part in of_random.groupby([str(column) for column in (TARGET, ESTIMATOR, BUDGET)])
    }
    lines = []
    for values, part in frame.groupby([str(column) for column in _TEST], sort=False):
        about = cells(_TEST, values)
        errors = squared(part)
        line = about | measures(errors, base.get(about[TARGET])) | on_average(part)
        if about[ESTIMATOR] in OF_BANK:
            fair = measures(errors, same_bank.get((about[TARGET], about[ESTIMATOR], about[BUDGET])))
            line |= dict(zip(with_interval(SAME_BANK), (fair[name] for name in with_interval(RATIO)), strict=True))
        lines.append(line | {MODELS: models, GROUPS: groups, REPEATS: part["repeat"].nunique()})
    return pd.DataFrame(lines)


def squared(part: pd.DataFrame) -> Cells:
    """Squared error of every model and group, mean over repeats, in squared percentage points; NaN where a test gave
    no estimate."""
    part = part.sort_values([MODEL, "group", "repeat"])
    error = (100 * (part[ESTIMATE] - part[TRUTH]).to_numpy(dtype=np.float64)) ** 2
    return error.reshape(part[MODEL].nunique(), part["group"].nunique(), -1).mean(axis=2)


def measures(errors: Cells, base: Cells | None) -> dict[str, float]:
    """Mean squared error over models and groups and its ratio to that of `base`, with 95 % intervals.

    Intervals leave out models and groups, each by itself, the same in both errors of a ratio (see jackknife_interval).
    None of one model and one group; no ratio where Static makes no error.
    """
    found: dict[str, float] = dict.fromkeys(_MEASURES, float("nan"))
    if np.isnan(errors).any():
        return found

    mean, left_out = float(errors.mean()), without_each(errors)
    found[MSE] = mean
    found[MSE_LOW], found[MSE_HIGH] = jackknife_interval(mean, *left_out, scale=LOG)
    if base is None or np.isnan(base).any() or not base.any():
        return found

    found[RATIO] = mean / float(base.mean())
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = [of / of_base for of, of_base in zip(left_out, without_each(base), strict=True)]
    found[RATIO.low], found[RATIO.high] = jackknife_interval(found[RATIO], *ratios, scale=LOG)
    return found


def without_each(errors: Cells) -> list[Float[np.ndarray, " left_out"]]:
    """Mean errors without each model, and without each group; a single one is not left out."""
    means = []
    for axis, number in enumerate(errors.shape):
        if number > 1:
            others = errors.sum(axis=axis, keepdims=True) - errors
            means.append(others.mean(axis=1 - axis) / (number - 1))
    return [np.ravel(values) for values in means]


def on_average(part: pd.DataFrame) -> Line:
    """Averages over tests of one method and target: truth and estimate, bias, coverage, order of the models.

    The order is Kendall's tau-b of estimated and true means, mean over repeats, as are the ends of its interval, which
    leaves out networks; NaN with fewer than three models.
    """
    defined = part.dropna(subset=[ESTIMATE, "se"])
    covered = (defined["low"] <= defined[TRUTH]) & (defined[TRUTH] <= defined["high"])
    means = part.groupby(["repeat", MODEL, "network"])[[TRUTH, ESTIMATE]].mean().reset_index("network")
    values = ((of[[TRUTH, ESTIMATE]].to_numpy(float).T, of["network"]) for _, of in means.groupby("repeat"))
    few = part[MODEL].nunique() < FEWEST
    taus = [] if few else [kendall(true, estimated, networks.tolist()) for (true, estimated), networks in values]
    tau = np.mean(taus, axis=0) if taus else UNKNOWN
    return {
        TRUTH: part[TRUTH].mean(),
        ESTIMATE: defined[ESTIMATE].mean(),
        BIAS: 100 * (defined[ESTIMATE] - defined[TRUTH]).mean(),
        COVERAGE: covered.mean() if len(defined) else float("nan"),
        UNDEFINED: len(part) - len(defined),
        **cells(with_interval(RANK_TAU), tau),
        WARNING: adaptive.WARNINGS.get(part[ESTIMATOR].iloc[0]) if part[POLICY].iloc[0] == "gre_two_stage" else None,
    }


def two_stage(pool: Pool, right: Bool[np.ndarray, " items"], budget: float, mapping: str, seed: list[int]) -> TwoStage:
    """A two-stage test replayed on stored responses. Raises FcaError for a pool or budget that it cannot take."""
    test = GreTwoStage(pool, budget, mapping=MAPPINGS[mapping])
    rounds = Rounds(test, np.random.default_rng(seed))
    ask_until_done(rounds, lambda positions: right[positions])

    round_of = np.zeros(pool.items, dtype=np.int64)
    for number, positions in enumerate(rounds.positions, start=1):
        round_of[positions] = number
    return TwoStage(round_of, pool.by_stratum(right & (round_of == 1)) @ POINTS // test.times)


def evaluated_lines(one: Answers, pool: Pool, budget: float, repeats: int, seed: int) -> pd.DataFrame:
    """One line a model, mapping and level: images a session in the first round, the second and both (table 1)."""
    lines: list[Line] = []
    for at, (model, right) in enumerate(zip(one.models, one.correct, strict=True)):
        for mapping in MAPPINGS:
            seeds = ([draws_of(seed, at), 0, repeat] for repeat in range(repeats))
            rounds = [two_stage(pool, right, budget, mapping, each).round for each in seeds]
            counts = np.mean([[pool.by_stratum(of == k).mean(axis=0) for k in (1, 2)] for of in rounds], axis=0)
            for level, (first, second) in zip(LEVELS, counts.T, strict=True):
                line: Line = {MODEL: model, TOP1: right.mean(), MAPPING: mapping, LEVEL: level}
                line |= {FIRST: first, SECOND: second, EVALUATED: first + second}
                lines.append(line | {SESSIONS: len(pool.sizes), REPEATS: repeats})
    return pd.DataFrame(lines)


def trajectory_lines(one: Answers, pool: Pool, budget: float, seed: int) -> pd.DataFrame:
    """One line a model and points: how many sessions have them, their next images, and what they get right."""
    lines: list[Line] = []
    for at, (model, correct) in enumerate(zip(one.models, one.correct, strict=True)):
        test = two_stage(pool, correct, budget, "Q", [draws_of(seed, at), 0, 0])
        images = [pool.by_stratum(test.round == k) for k in (1, 2)]
        right = [pool.by_stratum((test.round == k) & correct).sum(axis=1) for k in (1, 2)]
        whole = pool.by_stratum(correct).sum(axis=1) / pool.sizes.sum(axis=1)
        for points in np.unique(test.points):
            those = test.points == points
            first, second = (now[those].sum() / then[those].sum() for now, then in zip(right, images, strict=True))
            line: Line = {MODEL: model, TOP1: correct.mean(), POINTS_OF_SESSION: int(points)}
            line |= {SESSIONS: int(those.sum()), OF_SESSIONS: those.mean()}
            line |= cells(NEXT, images[1][those].mean(axis=0))
            lines.append(line | {RIGHT_FIRST: first, RIGHT_SECOND: second, WHOLE: whole[those].mean()})
    return pd.DataFrame(lines)


def session_lines(one: Answers, pool: Pool, budget: float, seed: int) -> pd.DataFrame:
    """One line an evaluated image, in order, of a few sessions of a few models: from few points to many, weak to
    strong."""
    order = np.argsort(one.correct.mean(axis=1), kind="stable")
    parts = [_sessions(one, pool, budget, seed, at) for at in _spread(order, SHOWN_MODELS).tolist()]
    return pd.concat(parts, ignore_index=True)


def _sessions(one: Answers, pool: Pool, budget: float, seed: int, at: int) -> pd.DataFrame:
    """The sessions of one model: random ones of every rank by points."""
    right = one.correct[at]
    test = two_stage(pool, right, budget, "Q", [draws_of(seed, at), 0, 0])
    ranked = np.lexsort((np.random.default_rng([seed, at]).random(len(test.points)), test.points))
    parts = []
    for session in _spread(ranked, SHOWN_SESSIONS).tolist():
        mine = np.flatnonzero((pool.session == session) & (test.round > 0))
        mine = mine[np.lexsort((pool.level[mine], test.round[mine]))]
        images = {PLACE: np.arange(1, len(mine) + 1), ROUND: test.round[mine], RIGHT: right[mine]}
        images |= {column: one.items[column].to_numpy()[mine] for column in (LEVEL, IMAGE_ID)}
        about = {SESSION: str(pool.session_names[session]), POINTS_OF_SESSION: int(test.points[session])}
        parts.append(pd.DataFrame({**about, **images, WHOLE: right[pool.session == session].mean()}))
    return pd.concat(parts).assign(model=one.models[at], top1=right.mean())


def _spread(ordered: Int[np.ndarray, " all"], number: int) -> Int[np.ndarray, " some"]:
    """That many of them at equal steps from the first to the last, or all."""
    places = np.linspace(0, len(ordered) - 1, min(number, len(ordered)))
    return ordered[np.round(places).astype(np.int64)]
