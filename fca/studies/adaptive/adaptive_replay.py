"""What would adaptive tests of a part of the images find? Tests replayed on stored predictions for all of them.

Each network takes every kind of test, with an item bank of other networks' responses where the test needs one. Tables:
squared errors by model (Huang et al. 2025, table 2), over models against Static, and by the share of images evaluated;
the images that two-stage tests evaluate by level (table 1), the points of sessions after their first round, and a few
sessions image by image (figure 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from fca.progress import track
from fca.stats.ask import ask_until_done
from fca.stats.correlation import kendall
from fca.stats.intervals import LOG, UNKNOWN_ESTIMATE, jackknife_interval
from fca.store import Store
from fca.studies.adaptive import stats as adaptive
from fca.studies.adaptive.adaptive_tests import BUDGET, ESTIMATE, ESTIMATOR, POLICY, SHARE, TARGET, TRUTH, WARNING
from fca.studies.adaptive.exposure import (
    ADAPTIVE_EXPOSURE,
    FEWEST,
    METHOD,
    REPEATS,
    ModelExposure,
    exposure_line,
    exposure_of_model,
)
from fca.studies.adaptive.pools import CompleteResponses, complete_responses
from fca.studies.adaptive.stats import MAPPINGS, POINTS, GreTwoStage, Policy, Pool, Rounds, replay, start_policy
from fca.studies.adaptive.stats.policies import check_budget
from fca.studies.irt.not_estimable import log_not_estimable, priors_noted
from fca.studies.irt.stats import ItemBank, check_responses, fit_irt
from fca.studies.irt.stats.model import NAMES
from fca.studies.progressive.levels import LEVEL, PAPER, SESSIONS, LevelProtocol, Line, cells, pool_of
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import COVERAGE, DATASET, IMAGE_ID, MODEL, MODELS, TOP1, TableSpec, filled
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed, Seed

Methods = tuple[tuple[str, str], ...]  # policies, each with an estimator
BASELINE = ("static_k", "session_mean")
DEFAULT = ("optimal_allocation", "stratified")
DEFAULT_OF_BANK = ("defensive_irt", "regression")
BANK_METHODS = (  # those with an item bank, and what random draws gain by the same bank
    ("random", "regression"),
    DEFAULT_OF_BANK,
    ("random", "p_irt"),
    ("fisher_cat", "p_irt"),
)
METHODS: Methods = (  # every policy with the estimator that is right for it
    BASELINE,
    ("random", "pooled"),
    ("gre_two_stage", "mixed_logit"),
    DEFAULT,
    *BANK_METHODS,
)
BASELINE_WITHOUT_LEVELS = ("random", "hypergeometric")
DEFAULT_WITHOUT_LEVELS = ("proportional", "hypergeometric")
METHODS_WITHOUT_LEVELS: Methods = (BASELINE_WITHOUT_LEVELS, DEFAULT_WITHOUT_LEVELS, *BANK_METHODS)
CURVES = (*METHODS, *METHODS_WITHOUT_LEVELS)
NEYMAN = ("neyman_irt", "regression")
SINGLE_BUDGET_METHODS: Methods = (  # replayed at one budget alone; the first two are biased
    ("gre_two_stage", "session_mean"),
    ("gre_two_stage", "pooled"),
    ("optimal_allocation", "mixed_logit"),
    NEYMAN,
)
RANDOM_DRAWS = tuple(method for method in BANK_METHODS if method[0] == "random")
SAME_BANK_NAME = "random draws, same bank ({})"
BANK_ESTIMATORS = ("regression", "difference", "p_irt")
FOLDS = 10  # of networks; one in each where they are fewer
EXAMPLE_MODELS, EXAMPLE_SESSIONS = 6, 6  # whose images are listed

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
SESSION_TRUTH = TRUTH.with_format(".1%", "right of all the session's images")
PLACE = Column("place", int, ".0f", "image, in the order evaluated")
ROUND = Column("round", int, ".0f", "round")
RIGHT = Column("right", bool, "", "whether the prediction is right")

_KIND_COLUMNS = (METHOD, POLICY, ESTIMATOR, TARGET, BUDGET, SHARE)
_ERROR_COLUMNS = (MSE, MSE_LOW, MSE_HIGH, *interval_columns(RATIO))
_SAME_BANK_COLUMNS = interval_columns(SAME_BANK)
_COLUMNS_OVER_MODELS = (
    DATASET,
    *_KIND_COLUMNS,
    *_ERROR_COLUMNS,
    *_SAME_BANK_COLUMNS,
    BIAS,
    COVERAGE,
    UNDEFINED,
    *interval_columns(RANK_TAU),
    MODELS,
    GROUPS,
    REPEATS,
    WARNING,
)
ADAPTIVE_ERRORS = TableSpec(
    "adaptive_errors",
    "How large is the error of a test of a part of the images, model by model?",
    f"{PAPER}, table 2",
    (
        DATASET,
        MODEL,
        *_KIND_COLUMNS,
        TRUTH,
        ESTIMATE,
        *_ERROR_COLUMNS,
        *_SAME_BANK_COLUMNS,
        BIAS,
        COVERAGE,
        UNDEFINED,
        GROUPS,
        REPEATS,
        WARNING,
    ),
)
ADAPTIVE_METHODS = TableSpec(
    "adaptive_methods",
    "How large is the error of each kind of test, against as many images drawn evenly?",
    f"{PAPER}, table 2",
    _COLUMNS_OVER_MODELS,
)
ADAPTIVE_CURVES = TableSpec(
    "adaptive_curves",
    "How large is the error of each kind of test, by the share of images that it evaluates?",
    f"of our own, after {PAPER}",
    _COLUMNS_OVER_MODELS,
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
    (DATASET, MODEL, TOP1, POINTS_OF_SESSION, SESSIONS, OF_SESSIONS, *NEXT, RIGHT_FIRST, RIGHT_SECOND, SESSION_TRUTH),
)
ADAPTIVE_SESSIONS = TableSpec(
    "adaptive_sessions",
    "How does a single session go?",
    f"{PAPER}, figure 5",
    (DATASET, MODEL, TOP1, SESSION, POINTS_OF_SESSION, PLACE, ROUND, LEVEL, RIGHT, IMAGE_ID, SESSION_TRUTH),
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

Errors = Float[np.ndarray, "models groups"]


class Setting(NamedTuple):
    """A kind of test: policy, estimator, and the share of the pool that it may evaluate."""

    policy: str
    estimator: str
    budget: float


class Banks(NamedTuple):
    """The item bank with which each model is tested; it is fitted on other networks' responses.

    of_model:      the bank of each model, or None for all of them where the responses cannot be fitted.
    lacking:       why they cannot be fitted; None where there are banks.
    not_estimable: scales that the fit of any bank could not learn; see `IrtFit`.
    """

    of_model: tuple[ItemBank | None, ...]
    lacking: str | None
    not_estimable: tuple[str, ...] = ()


class Replayed(NamedTuple):
    """The tests of one data set.

    tests:         a line for each test, group and target; see `replay_tests`.
    exposure:      the lines of adaptive_exposure.
    left_out:      the kinds of test that the pool does not allow, with the reason.
    not_estimable: scales that an item bank could not learn.
    """

    tests: pd.DataFrame
    exposure: pd.DataFrame
    left_out: list[str]
    not_estimable: tuple[str, ...]


class TwoStage(NamedTuple):
    """One two-stage test of one model.

    round:  the round of every evaluated image, 1 or 2; 0 for all other images.
    points: the points of every session after its first round, 0 to 9.
    """

    round: Int[np.ndarray, " items"]
    points: Int[np.ndarray, " sessions"]


@dataclass(frozen=True)
class AdaptiveReplay:
    """`analysis=adaptive_replay`; reads `predict` rows of full models, and files of responses.

    It replays tests on images with columns attribute and level. Images without these are one group; they are read where
    files are named, or where no set has levels.
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
        list[int | float],
        Allowed(above=0, most=1, non_empty=True),
        "shares of the images at which the curves have points",
    ] = field(default_factory=lambda: [0.08, 0.17, 0.25, 0.33, 0.5, 0.75])
    repeats: Annotated[int, Allowed(1), "tests of each kind and model"] = 3
    model: Annotated[str, Allowed(choices=NAMES), "of item responses, for policies with a bank"] = "2pl"
    seed: Annotated[Seed, "of the sessions and of random choices"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables adaptive_errors, adaptive_methods, adaptive_curves, adaptive_exposure, adaptive_asked,
        adaptive_trajectories and adaptive_sessions, each over all data sets.

        Their parameter `left_out` names the tests that could not be replayed, with the reason.
        Raises FcaError when there is no data set to replay tests on.
        """
        check_budget(self.budget)
        # the lines of each table, one frame for each data set
        frames_by_table: dict[str, list[pd.DataFrame]] = {spec.name: [] for spec in self.tables}
        left_out: list[str] = []  # sentences: a kind of test, and why it could not be replayed
        # for each fit of an item response model, the parameters of its prior that the responses did not determine, such
        # as "spread of ability"
        not_estimable: dict[str, tuple[str, ...]] = {}
        runs: set[str] = set()

        for source in complete_responses(store, self.query, self.responses, self.protocol):
            pool = pool_of(source.items)
            kinds_of_tests = settings(self.budget, self.budgets, has_levels=pool.has_levels)
            replayed = replay_tests(source, pool, kinds_of_tests, self.repeats, self.model, self.seed)

            left_out += replayed.left_out
            if replayed.not_estimable:
                not_estimable[f"{source.dataset}, item banks of other models"] = replayed.not_estimable
            runs |= set(source.runs)
            for spec, frame in self._frames(source, pool, replayed):
                frames_by_table[spec.name].append(spec.frame(frame.assign(dataset=source.dataset)))

        tables: list[Any] = []
        for frames in frames_by_table.values():
            tables.append(pd.concat(frames, ignore_index=True) if frames else [])
        # stored with the tables: the settings, how the numbers were computed (NOTES), the tests that are missing, and
        # the parameters that could not be estimated
        parameters = {**asdict(self), **NOTES, "left_out": left_out, **priors_noted(not_estimable)}
        return filled(self.tables, tables, parameters, runs)

    def _frames(
        self, source: CompleteResponses, pool: Pool, replayed: Replayed
    ) -> Iterator[tuple[TableSpec, pd.DataFrame]]:
        """Pairs of a table and its lines for one data set.

        The tables of errors and of methods compare tests at the configured budget; beside these they have the baseline
        with twice as many images. The table of curves has every budget of the methods in CURVES. The last three tables
        describe two-stage tests, and are left out where the pool is too small for such tests.

        source, pool: the data set, and its images by level and session.
        replayed:     its tests.
        """
        tests = replayed.tests
        is_at_budget = tests[BUDGET] == self.budget
        is_double_baseline = (tests[BUDGET] == 2 * self.budget) & is_baseline(tests)
        tests_at_budget = tests[is_at_budget | is_double_baseline]
        methods = zip(tests[POLICY], tests[ESTIMATOR], strict=True)
        is_of_curve = [method in CURVES for method in methods]

        by_model = []
        for model, tests_of_one_model in tests_at_budget.groupby(MODEL, sort=False):
            by_model.append(summarise(tests_of_one_model, self.budget).assign(model=model))
        errors = pd.concat(by_model, ignore_index=True)  # a line for each model
        yield ADAPTIVE_ERRORS, errors.drop(columns=[*interval_columns(RANK_TAU), MODELS])  # one model has no order

        # truth and estimate are in the table of single models only
        means_over_models = [TRUTH, ESTIMATE]
        yield ADAPTIVE_METHODS, summarise(tests_at_budget, self.budget).drop(columns=means_over_models)
        yield ADAPTIVE_CURVES, summarise(tests[is_of_curve], self.budget).drop(columns=means_over_models)
        yield ADAPTIVE_EXPOSURE, replayed.exposure

        if (tests.loc[is_at_budget, POLICY] == "gre_two_stage").any():
            yield ADAPTIVE_ASKED, evaluated_lines(source, pool, self.budget, self.repeats, self.seed)
            yield ADAPTIVE_TRAJECTORIES, trajectory_lines(source, pool, self.budget, self.seed)
            yield ADAPTIVE_SESSIONS, session_lines(source, pool, self.budget, self.seed)


def settings(budget: float, budgets: Iterable[int | float], has_levels: bool = True) -> list[Setting]:
    """The kinds of test that are replayed on images with or without levels.

    A method is a policy with an estimator. The kinds are:

    - each method at the configured budget, and at the budgets at which the curves of error by budget have points;
    - the methods of SINGLE_BUDGET_METHODS, which have no curve, at the configured budget only;
    - the baseline with twice that budget, if this is at most the whole pool. It shows whether a method is as good as
      twice as many images of the baseline.

    budget, budgets: shares of the images; `budgets` are those of the curves.
    """
    methods = METHODS if has_levels else METHODS_WITHOUT_LEVELS
    # of SINGLE_BUDGET_METHODS, only NEYMAN (Neyman allocation with an item bank) can do without levels
    single_budget_methods: Methods = SINGLE_BUDGET_METHODS if has_levels else (NEYMAN,)
    baseline = BASELINE if has_levels else BASELINE_WITHOUT_LEVELS

    other_budgets = sorted({*map(float, budgets)} - {float(budget)})  # the configured budget comes first, and once
    kinds = [Setting(*method, share) for method in methods for share in (float(budget), *other_budgets)]
    kinds += [Setting(*method, float(budget)) for method in single_budget_methods]
    double_baseline = Setting(*baseline, 2.0 * budget)
    if double_baseline.budget <= 1 and double_baseline not in kinds:
        kinds.append(double_baseline)
    return kinds


def is_baseline(tests: pd.DataFrame) -> pd.Series:
    """Whether each test is a baseline, with which others are compared.

    Baselines evaluate evenly drawn images: with levels k images of every level of a session (`static_k`), without
    levels a simple random sample.
    """
    is_static = tests[POLICY] == BASELINE[0]
    policy, estimator = BASELINE_WITHOUT_LEVELS
    is_simple_random_sample = (tests[POLICY] == policy) & (tests[ESTIMATOR] == estimator)
    return is_static | is_simple_random_sample


def replay_tests(
    source: CompleteResponses, pool: Pool, kinds: Sequence[Setting], repeats: int, model: str, seed: int
) -> Replayed:
    """Replay each kind of test on every model; kinds that the pool does not allow are listed with the reason.

    source, pool: the responses of the models to one data set, and its images by level and session.
    kinds:        policy, estimator and budget of each kind of test.
    model:        the item response model of the item banks.
    repeats:      tests of each kind and model.

    The frame `tests` of the result has a line for each test, group of images and target: truth, estimate and interval,
    how many images of the group were evaluated ("asked"), the names of model and network, and the kind of test. Where
    two budgets of a method evaluate equally many images (policies round), only the first is kept. The frame `exposure`
    has a line for each policy and budget: how often tests evaluate the same images, and how well they order the models.
    The result also names the parameters that the fit of an item bank could not determine (`not_estimable`).
    """
    banks = banks_of_others(source, model)  # of each model, the item parameters fitted on other networks
    # accuracy of each model; `pool.truth` gives groups x targets, and accuracy is the first target
    truth = np.array([pool.truth(right)[:, 0].mean() for right in source.correct])
    models = len(source.models)

    frames: list[pd.DataFrame] = []
    exposure: list[Line] = []
    refusals: list[str] = []
    replayed_sizes: set[tuple[str, str, int]] = set()  # policy, estimator, mean number of images of a test
    replayed_exposures: set[tuple[str, float]] = set()  # policy, share of the images
    for setting in track(kinds, f"tests of {source.dataset}"):
        policy, estimator, budget = setting
        # why this kind of test is impossible, for example because the pool has too few images of a level; else None
        refusal = why_not(setting, pool, banks)
        if refusal is not None:
            refusals.append(f"{source.dataset}: {policy} at budget {budget:g}: {refusal}")
            continue

        tests_by_model = [
            _replay_model(source, pool, setting, banks, position, repeats, seed) for position in range(models)
        ]
        frame = pd.concat(tests for tests, _ in tests_by_model)
        # mean number of images of a test. "asked" counts the images of a group; a group has a line for each target, so
        # that the sum has every image as often as there are targets
        n_evaluated = frame["asked"].sum() / (models * repeats * len(pool.targets))
        size = (policy, estimator, round(n_evaluated))
        if size in replayed_sizes:
            continue
        replayed_sizes.add(size)

        share = n_evaluated / pool.n_items
        columns = {**setting._asdict(), "method": name_of(setting, pool), "share": share}
        frames.append(frame.assign(**columns))

        # How often each image is evaluated depends on the policy alone: a policy has one line for all its estimators.
        # CURVES are the methods whose tests are shown at every budget
        if (policy, estimator) in CURVES and (policy, share) not in replayed_exposures:
            replayed_exposures.add((policy, share))
            line = exposure_line([images for _, images in tests_by_model], truth, source.networks)
            exposure.append({**columns, **line, MODELS: models, REPEATS: repeats})

    tests = pd.concat(frames, ignore_index=True)  # never empty: policy `random` can be replayed on any pool
    return Replayed(tests, pd.DataFrame(exposure), refusals, banks.not_estimable)


def why_not(setting: Setting, pool: Pool, banks: Banks) -> str | None:
    """Why this kind of test cannot be replayed: because of the pool, or a lack of item banks. None if it can."""
    if setting.estimator in BANK_ESTIMATORS and banks.lacking is not None:
        return banks.lacking
    try:  # with any model's bank: all have the items of the pool
        start_policy(setting.policy, pool, setting.budget, banks.of_model[0])
    except FcaError as error:
        return str(error)
    return None


def banks_of_others(source: CompleteResponses, model: str) -> Banks:
    """An item bank for each model, fitted with the item response model `model` on the networks of other folds.

    There are ten folds of networks, or as many as networks. Models that differ only in their seed are one network, and
    in the same fold. If the responses outside any fold cannot be fitted, no model gets a bank, and the result has the
    reason. The result also names the parameters of the model's prior, such as the spread of ability, that the responses
    of any fit did not determine (`not_estimable`); a warning is logged for them.
    """
    names = sorted(set(source.networks))
    number_of_folds = min(FOLDS, len(names))
    fold_of_model = [names.index(network) % number_of_folds for network in source.networks]

    bank_of_fold: dict[int, ItemBank] = {}
    not_estimable: dict[str, None] = {}  # used as an ordered set: the keys are names such as "spread of ability"
    for fold in set(fold_of_model):
        responses_of_others = source.correct[np.array(fold_of_model) != fold].astype(np.float64)
        try:
            check_responses(responses_of_others)
        except FcaError as error:
            no_banks = (None,) * len(source.networks)
            return Banks(no_banks, f"no item bank from other models' responses: {error}")
        fit = fit_irt(responses_of_others, model)
        bank_of_fold[fold] = fit.bank
        not_estimable |= dict.fromkeys(fit.not_estimable)

    log_not_estimable(f"{source.dataset}, item banks of other models", tuple(not_estimable))
    return Banks(tuple(bank_of_fold[fold] for fold in fold_of_model), None, tuple(not_estimable))


def _replay_model(
    source: CompleteResponses, pool: Pool, setting: Setting, banks: Banks, position: int, repeats: int, seed: int
) -> tuple[pd.DataFrame, ModelExposure]:
    """Replay all tests of one model and one kind of test.

    Returns a line for each repeat, group of images and target, and which images each test evaluated, with the ability
    that it measured. Each model has random draws of its own (`draws_of` gives its seed).

    setting:  policy, estimator and budget.
    banks:    the item bank of each model.
    position: of the model among the models of `source`.
    """
    started: list[Policy] = []

    def start(pool: Pool, budget: int | float, bank: ItemBank | None) -> Policy:
        """Start the policy of one repeat, as `replay` asks for it, and keep it in `started`.

        `replay` returns no policies, but their records have the images that the tests evaluated.
        """
        policy = start_policy(setting.policy, pool, budget, bank)
        started.append(policy)
        return policy

    bank = banks.of_model[position]
    tests = replay(
        source.correct[[position]],  # 1 x items
        pool.level if pool.has_levels else None,
        pool.session,
        pool.group,  # numbers of the groups; below, the result gets their names
        policy=start,
        estimator=setting.estimator,
        budget=setting.budget,
        bank=bank,
        repeats=repeats,
        seed=draws_of(seed, position),
    )
    group_names = pool.group_names[tests["group"].to_numpy(dtype=np.int64)]
    tests = tests.assign(model=source.models[position], network=source.networks[position], group=group_names)
    return tests, exposure_of_model([policy.record for policy in started], pool, bank)


def draws_of(seed: int, position: int) -> int:
    """The seed of a model's draws: no two models share one."""
    return 100_000 * seed + position


def name_of(setting: Setting, pool: Pool) -> str:
    """The name of a kind of test in tables and figures: usually "policy + estimator".

    The baseline is named by its size: the images of each session and level (Static 3), or without levels the size of
    the random sample. Random draws with an item bank have a name of their own, because tests that choose images by the
    same bank are compared with them.

    >>> from fca.studies.adaptive.stats import make_pool
    >>> level, session, group = np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int)
    >>> name_of(Setting("static_k", "session_mean", 0.25), make_pool(level, session, group))
    'Static 3'
    """
    method = (setting.policy, setting.estimator)
    n_evaluated = setting.budget * pool.n_items
    if method == BASELINE:
        return f"Static {round(n_evaluated / pool.sizes.size)}"  # sizes: sessions x levels
    if method == BASELINE_WITHOUT_LEVELS:
        return f"random sample of {round(n_evaluated):,}"
    if setting.policy == "random" and setting.estimator in BANK_ESTIMATORS:
        return SAME_BANK_NAME.format(setting.estimator)
    return f"{setting.policy} + {setting.estimator}"


def summarise(tests: pd.DataFrame, budget: float) -> pd.DataFrame:
    """One line per method, budget and target: its mean squared error over models and groups, bias, and error ratios.

    One ratio is to the error of the baseline at `budget`. Methods with an item bank have a second ratio, to the error
    of random draws with the same bank, estimator and budget. Intervals are over models and groups.

    tests: a line for each test, group and target, as `replay_tests` returns them. In this function `errors` are the
           squared errors of each model and group (models x groups).
    """
    models = tests[MODEL].nunique()
    groups = tests["group"].nunique()

    baseline = tests[is_baseline(tests) & (tests[BUDGET] == budget)]
    baseline_errors: dict[Any, Errors] = {
        target: squared_errors(of_target) for target, of_target in baseline.groupby(TARGET)
    }
    # (target, estimator, budget) -> errors of random draws with an item bank
    random_with_bank = tests[(tests[POLICY] == "random") & tests[ESTIMATOR].isin(BANK_ESTIMATORS)]
    by_target_estimator_and_budget = random_with_bank.groupby([TARGET, ESTIMATOR, BUDGET])
    same_bank_errors: dict[Any, Errors] = {
        key: squared_errors(of_key) for key, of_key in by_target_estimator_and_budget
    }

    lines = []
    for values, of_method in tests.groupby(list(_KIND_COLUMNS), sort=False):
        method = cells(_KIND_COLUMNS, values)  # {column: value}
        target, estimator = method[TARGET], method[ESTIMATOR]
        errors = squared_errors(of_method)

        to_same_bank: Line = {}  # the second ratio, with its interval
        if estimator in BANK_ESTIMATORS:
            random_errors = same_bank_errors.get((target, estimator, method[BUDGET]))
            measures = error_measures(errors, random_errors)
            ratio_with_ends = [measures[name] for name in interval_columns(RATIO)]
            to_same_bank = cells(interval_columns(SAME_BANK), ratio_with_ends)

        line: Line = {
            **method,
            **error_measures(errors, baseline_errors.get(target)),
            **averages(of_method),
            **to_same_bank,
            MODELS: models,
            GROUPS: groups,
            REPEATS: of_method["repeat"].nunique(),
        }
        lines.append(line)
    return pd.DataFrame(lines)


def squared_errors(tests: pd.DataFrame) -> Errors:
    """Squared error of each model and group, the mean over repeats, in squared percentage points.

    tests: of one method, budget and target, with as many repeats for every model and group.
    NaN where a test gave no estimate.
    """
    tests = tests.sort_values([MODEL, "group", "repeat"])
    error = (100 * (tests[ESTIMATE] - tests[TRUTH]).to_numpy(dtype=np.float64)) ** 2
    by_repeat = error.reshape(tests[MODEL].nunique(), tests["group"].nunique(), -1)  # models x groups x repeats
    return by_repeat.mean(axis=2)


def error_measures(errors: Errors, base: Errors | None) -> dict[str, float]:
    """Columns of the mean squared error over models and groups, and of its ratio to the mean of `base`.

    Both have 95 % jackknife intervals, from the values without each model and without each group, on a logarithmic
    scale. In a ratio both errors leave out the same model or group.

    errors, base: squared error of each model and group: of a method, and of the method that it is compared with.
    All columns are NaN if any of the errors is unknown (NaN). Intervals are NaN for a single model with a single group.
    The ratio is NaN where `base` is None, has an unknown error, or is 0 everywhere.
    """
    line: dict[str, float] = dict.fromkeys(_ERROR_COLUMNS, float("nan"))
    if np.isnan(errors).any():
        return line

    mean = float(errors.mean())
    means_left_out = left_out_means(errors)  # one array without each model, one without each group
    line[MSE] = mean
    line[MSE_LOW], line[MSE_HIGH] = jackknife_interval(mean, *means_left_out, scale=LOG)  # LOG: errors are positive
    if base is None or np.isnan(base).any() or not base.any():
        return line

    line[RATIO] = mean / float(base.mean())
    with np.errstate(invalid="ignore", divide="ignore"):  # `base` may be 0 without one model or group
        pairs = zip(means_left_out, left_out_means(base), strict=True)
        ratios_left_out = [means / base_means for means, base_means in pairs]
    line[RATIO.low], line[RATIO.high] = jackknife_interval(line[RATIO], *ratios_left_out, scale=LOG)
    return line


def left_out_means(errors: Errors) -> list[Float[np.ndarray, " left_out"]]:
    """The mean errors without each model in turn, and those without each group in turn, as two arrays.

    A single model, or a single group, cannot be left out: its array is then not in the list.
    """
    means = []
    for axis, number in enumerate(errors.shape):
        if number > 1:
            # models x groups: in place of each error, the sum of the errors of the other models (or groups)
            sums_of_others = errors.sum(axis=axis, keepdims=True) - errors
            means.append(sums_of_others.mean(axis=1 - axis) / (number - 1))
    return [np.ravel(values) for values in means]


def averages(tests: pd.DataFrame) -> Line:
    """Columns of averages over the tests of one method and target: truth, estimate, bias, coverage, rank correlation.

    Averages are over models, groups and repeats. Tests without an estimate or a standard error are counted (UNDEFINED)
    and left out of estimate, bias and coverage.
    The rank correlation is Kendall's tau-b between the models' estimated and true means over groups. Its value and both
    ends of its interval are means over repeats; NaN with fewer than FEWEST (3) models. The interval is a jackknife over
    networks: models that are snapshots or seeds of one network are left out together.
    """
    defined = tests.dropna(subset=[ESTIMATE, "se"])
    is_covered = (defined["low"] <= defined[TRUTH]) & (defined[TRUTH] <= defined["high"])

    taus = []
    if tests[MODEL].nunique() >= FEWEST:
        # mean over groups, one line for each repeat and model
        means = tests.groupby(["repeat", MODEL, "network"])[[TRUTH, ESTIMATE]].mean().reset_index("network")
        for _, of_repeat in means.groupby("repeat"):
            true, estimated = of_repeat[[TRUTH, ESTIMATE]].to_numpy(float).T
            taus.append(kendall(true, estimated, of_repeat["network"].tolist()))

    policy, estimator = tests[POLICY].iloc[0], tests[ESTIMATOR].iloc[0]
    rank_tau_with_ends = np.mean(taus, axis=0) if taus else UNKNOWN_ESTIMATE  # three times NaN
    return {
        TRUTH: tests[TRUTH].mean(),
        ESTIMATE: defined[ESTIMATE].mean(),
        BIAS: 100 * (defined[ESTIMATE] - defined[TRUTH]).mean(),
        COVERAGE: is_covered.mean() if len(defined) else float("nan"),
        UNDEFINED: len(tests) - len(defined),
        **cells(interval_columns(RANK_TAU), rank_tau_with_ends),
        # some estimators (keys of WARNINGS) are biased where a session's own responses decide which of its images are
        # evaluated; of the replayed policies this is gre_two_stage
        WARNING: adaptive.WARNINGS.get(estimator) if policy == "gre_two_stage" else None,
    }


def two_stage(pool: Pool, right: Bool[np.ndarray, " items"], budget: float, mapping: str, seed: list[int]) -> TwoStage:
    """Replay one two-stage test on a model's stored responses; returns each item's round and each session's points.

    Each session (class and attribute) gets 1 easy, 2 medium and 1 hard item in the first round. A right response to an
    easy, medium or hard item there earns the session 1, 2 or 4 points. The mapping gives, for each number of points,
    how many items of each level the second round has. A larger budget multiplies both rounds (`test.times`).

    right:   the model's responses.
    mapping: Q or L, a name of MAPPINGS.
    seed:    seeds the random draws; see `_seed_of_test`.
    Raises FcaError for a pool or a budget that the policy refuses.
    """
    test = GreTwoStage(pool, budget, mapping=MAPPINGS[mapping])
    rounds = Rounds(test, np.random.default_rng(seed))
    ask_until_done(rounds, lambda positions: right[positions])

    round_of = np.zeros(pool.n_items, dtype=np.int64)
    for number, positions in enumerate(rounds.positions, start=1):
        round_of[positions] = number

    n_right_first = pool.by_stratum(right & (round_of == 1))  # right in the first round; sessions x levels
    # POINTS: 1, 2 and 4 of an easy, medium and hard item. Divided by `times`, as the policy does, a session has 0 to 9
    return TwoStage(round=round_of, points=n_right_first @ POINTS // test.times)


def _seed_of_test(seed: int, position: int, repeat: int = 0) -> list[int]:
    """The seed of one test of a model, equal to the one that `replay` uses for it.

    `replay` seeds a test by its own seed, the position of the model, and the repeat. `_replay_model` calls it with one
    model at a time, so that the position is always 0, and the seed is different for each model (`draws_of`).

    position: of the model among all models.
    """
    return [draws_of(seed, position), 0, repeat]


def evaluated_lines(source: CompleteResponses, pool: Pool, budget: float, repeats: int, seed: int) -> pd.DataFrame:
    """One line per model, mapping and level: images per session in the first round, the second and both.

    The numbers are means over sessions (a class and an attribute) and repeats of the two-stage test, as in table 1 of
    Huang et al. (2025). A session earns points by its right responses in the first round, and a mapping gives the
    images of its second round by these points.
    """
    lines: list[Line] = []
    for position, (model, right) in enumerate(zip(source.models, source.correct, strict=True)):
        for mapping in MAPPINGS:
            images_by_round = []  # repeats x rounds x levels
            for repeat in range(repeats):
                test = two_stage(pool, right, budget, mapping, _seed_of_test(seed, position, repeat))
                by_session = [pool.by_stratum(test.round == number) for number in (1, 2)]  # each sessions x levels
                images_by_round.append([images.mean(axis=0) for images in by_session])
            first_round, second_round = np.mean(images_by_round, axis=0)

            for level, first, second in zip(LEVELS, first_round, second_round, strict=True):
                line: Line = {
                    MODEL: model,
                    TOP1: right.mean(),
                    MAPPING: mapping,
                    LEVEL: level,
                    FIRST: first,
                    SECOND: second,
                    EVALUATED: first + second,
                    SESSIONS: len(pool.sizes),
                    REPEATS: repeats,
                }
                lines.append(line)
    return pd.DataFrame(lines)


def trajectory_lines(source: CompleteResponses, pool: Pool, budget: float, seed: int) -> pd.DataFrame:
    """One line per model and number of points that a session has after the first round of a two-stage test.

    A session is a class and an attribute. A right easy, medium or hard image of the first round earns it 1, 2 or 4
    points. Mapping Q, the default of the policy, gives the images of the second round by the points.
    The line has the number of sessions with these points, the images of their second round by level, the shares right
    in either round, and the share right of all their images. All are from the first repeat of each model's test.
    """
    lines: list[Line] = []
    for position, (model, correct) in enumerate(zip(source.models, source.correct, strict=True)):
        test = two_stage(pool, correct, budget, mapping="Q", seed=_seed_of_test(seed, position))
        images_first = pool.by_stratum(test.round == 1)  # sessions x levels
        images_second = pool.by_stratum(test.round == 2)
        right_first = pool.by_stratum((test.round == 1) & correct).sum(axis=1)  # sessions
        right_second = pool.by_stratum((test.round == 2) & correct).sum(axis=1)
        session_truth = pool.by_stratum(correct).sum(axis=1) / pool.sizes.sum(axis=1)

        for points in np.unique(test.points):
            has_points = test.points == points
            line: Line = {
                MODEL: model,
                TOP1: correct.mean(),
                POINTS_OF_SESSION: int(points),
                SESSIONS: int(has_points.sum()),
                OF_SESSIONS: has_points.mean(),
                **cells(NEXT, images_second[has_points].mean(axis=0)),
                RIGHT_FIRST: right_first[has_points].sum() / images_first[has_points].sum(),
                RIGHT_SECOND: right_second[has_points].sum() / images_second[has_points].sum(),
                SESSION_TRUTH: session_truth[has_points].mean(),
            }
            lines.append(line)
    return pd.DataFrame(lines)


def session_lines(source: CompleteResponses, pool: Pool, budget: float, seed: int) -> pd.DataFrame:
    """One line for each image that a two-stage test evaluates, for a few models and a few sessions of each.

    Models are EXAMPLE_MODELS from the least to the most accurate; their sessions (a class and an attribute) are
    EXAMPLE_SESSIONS from few points after the first round to many. Images are in the order of evaluation.
    """
    weakest_first = np.argsort(source.correct.mean(axis=1), kind="stable")
    positions = _equal_steps(weakest_first, EXAMPLE_MODELS).tolist()
    frames = [_example_sessions(source, pool, budget, seed, position) for position in positions]
    return pd.concat(frames, ignore_index=True)


def _example_sessions(source: CompleteResponses, pool: Pool, budget: float, seed: int, position: int) -> pd.DataFrame:
    """A few sessions of one model, image by image: a line for each image that a two-stage test evaluates.

    A session is a class and an attribute. A right easy, medium or hard image of the first round earns it 1, 2 or 4
    points. The sessions are ordered by their points (those with the same points at random), and EXAMPLE_SESSIONS of
    them are taken at equal steps from the fewest points to the most.

    position: of the model among the models of `source`.
    """
    right = source.correct[position]
    # the test of the first repeat; mapping Q, the default of the policy, gives the second round by the points
    test = two_stage(pool, right, budget, mapping="Q", seed=_seed_of_test(seed, position))
    random_order = np.random.default_rng([seed, position]).random(len(test.points))
    fewest_points_first = np.lexsort((random_order, test.points))  # by points; ties in random order

    frames = []
    for session in _equal_steps(fewest_points_first, EXAMPLE_SESSIONS).tolist():
        is_of_session = pool.session == session
        images = np.flatnonzero(is_of_session & (test.round > 0))
        images = images[np.lexsort((pool.level[images], test.round[images]))]  # by round, then by level
        columns = {
            SESSION: str(pool.session_names[session]),
            POINTS_OF_SESSION: int(test.points[session]),
            PLACE: np.arange(1, len(images) + 1),  # in the order of evaluation
            ROUND: test.round[images],
            RIGHT: right[images],
            LEVEL: source.items[LEVEL].to_numpy()[images],
            IMAGE_ID: source.items[IMAGE_ID].to_numpy()[images],
            SESSION_TRUTH: right[is_of_session].mean(),
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames).assign(model=source.models[position], top1=right.mean())


def _equal_steps(ordered: Int[np.ndarray, " values"], number: int) -> Int[np.ndarray, " chosen"]:
    """This number of the values, at equal steps from the first to the last; all of them if there are fewer."""
    places = np.linspace(0, len(ordered) - 1, min(number, len(ordered)))
    return ordered[np.round(places).astype(np.int64)]
