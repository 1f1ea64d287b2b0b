"""Figures and statements of analysis=adaptive_replay and adaptive_tests, and `FINDINGS`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Finding, Statement
from fca.report.small import format_with_interval
from fca.store.columns import PREDICT_S, SHIFT
from fca.studies.adaptive import adaptive_replay as replay
from fca.studies.adaptive import adaptive_tests as live
from fca.studies.adaptive.adaptive_tests import ESTIMATE, ESTIMATOR, POLICY, SHARE, TARGET, TRUTH
from fca.studies.adaptive.exposure import ABILITY_TAU, ADAPTIVE_EXPOSURE, COMMON, LARGEST, METHOD, NEVER, REPEATS
from fca.studies.progressive.levels import ATTRIBUTE, LEVEL
from fca.tables import table
from fca.tables.table import COVERAGE, DATASET, MODEL, MODELS, NCL, PROTOCOL, RUN_ID, SEED, TOP1
from fca.types import Column, Table, interval_columns

EXAMPLE_TESTS = 6  # drawn by attribute
_EVENLY_DRAWN, _ADAPTIVE = "evenly drawn", "adaptive, needs levels only"
_NEEDS_BANK, _BIASED = "needs an item bank", "biased by its adaptive draw"
_NEEDS_OF_POLICY = {"static_k": _EVENLY_DRAWN, "random": _EVENLY_DRAWN, "proportional": _EVENLY_DRAWN}
NEEDS = Column(
    "kind", str, "", "what the test needs", {name: name for name in (_EVENLY_DRAWN, _ADAPTIVE, _NEEDS_BANK, _BIASED)}
)
MSE = Column("mse", float, ".2f", "squared error (squared % points), log scale")


def _name_of_method(policy: str, estimator: str) -> str:
    """A method's name in legends: "policy + estimator", or what tests with the same bank are compared with."""
    if (policy, estimator) in replay.RANDOM_DRAWS:
        return replay.SAME_BANK_NAME.format(estimator)
    return f"{policy} + {estimator}"


_METHOD_NAMES = {
    f"{policy} + {estimator}": _name_of_method(policy, estimator)
    for policy, estimator in (*replay.METHODS, *replay.METHODS_WITHOUT_LEVELS)
}
POLICY_AND_ESTIMATOR = Column("way", str, "", "policy and estimator", _METHOD_NAMES)
_DEFAULT_METHODS = (" + ".join(replay.DEFAULT), " + ".join(replay.DEFAULT_WITHOUT_LEVELS))
_DEFAULT_WITH_BANK = " + ".join(replay.DEFAULT_OF_BANK)
_RANDOM_WITH_BANK = replay.SAME_BANK_NAME.format(replay.DEFAULT_OF_BANK[1])
_TITLE_OF_TARGET = dict(TARGET.choices)
_ERROR_HOVER = (
    DATASET,
    MODEL,
    METHOD,
    NEEDS,
    TARGET,
    SHARE,
    *interval_columns(MSE),
    *interval_columns(replay.RATIO),
    *interval_columns(replay.SAME_BANK),
    replay.BIAS,
    COVERAGE,
    replay.UNDEFINED,
    replay.GROUPS,
    REPEATS,
)
_FILTERS = (DATASET, MODEL)
_METHOD_SHAPES = ("square", "diamond", "circle", "cross", "triangle-up", "triangle-down")
_LOG_AXIS: dict[str, Any] = {"type": "log", "nice": False, "padding": 12}
VALUE = table.VALUE.with_format(".2%", "share right")
_NAME_OF_SHARE = {
    replay.RIGHT_SECOND: "right in the second round",
    replay.SESSION_TRUTH: "right of all the session's images",
}
LINE = Column("line", str, "", "share", {name: name for name in _NAME_OF_SHARE.values()})
RESPONSE = Column("response", str, "", "prediction")
STEP = Column("step", str, "", "round and image")
MEASURE = VALUE.with_format(".2f", "value")
_KIND_COLUMNS = (DATASET, POLICY, ESTIMATOR, live.BUDGET, SHARE, MODELS, REPEATS)
_TITLE_OF_MEASURE = {
    replay.RANK_TAU: "order by estimated accuracy, tau",
    ABILITY_TAU: "order by ability, tau",
    LARGEST: "tests that evaluate the most frequent image",
    NEVER: "images that no test evaluates",
    COMMON: "images of a test that another evaluates too",
}
_SOURCE_NAMES = ("estimate with its 95 % interval", "all images")
SOURCE = Column("source", str, "", "images", {name: name for name in _SOURCE_NAMES})
_COVERED_IN_WORDS = {True: "the true value is inside the interval", False: "outside"}
INSIDE = Column(live.COVERED, str, "", "truth", {name: name for name in _COVERED_IN_WORDS.values()})
_TEST_HOVER = (
    DATASET,
    MODEL,
    SHIFT,
    POLICY_AND_ESTIMATOR,
    TARGET,
    ESTIMATE,
    live.LOW,
    live.HIGH,
    TRUTH,
    live.ERROR,
    *live.EVALUATED,
    SEED,
)
_COST_HOVER = (live.N_EVALUATED, live.N_POOL, SHARE, live.ROUNDS, PREDICT_S, live.FULL_S, live.TIME_SHARE, live.WARNING)
_PREFIX_BY_OPTION = {
    SHIFT: "",
    POLICY_AND_ESTIMATOR: "",
    PROTOCOL: "",
    live.BUDGET: "budget ",
    live.WIDTH: "width ",
    NCL: "ncl ",
}


def errors_figure(errors: Table, methods: Table) -> alt.FacetChart:
    """Squared error of every method: an open mark for each model, a filled mark with its interval for the models' mean.

    Colours are the kinds of method (column NEEDS). A method has the last of these kinds that applies to it:

    - evenly drawn images (policies static_k, random and proportional)
    - adaptive, needs levels only (all other policies)
    - needs an item bank
    - biased by its adaptive draw

    errors: the table adaptive_errors, with a line for each model.
    methods: the table adaptive_methods, with means over models.
    """
    of_models = errors.frame.assign(mark="model")
    of_methods = methods.frame.assign(mark="mean")
    frame = _prepare_errors(pd.concat([of_methods, of_models]))

    # methods whose shares of the images are equal up to rounding keep the order of the table
    most_images_first = methods.frame.sort_values(
        SHARE, ascending=False, kind="stable", key=lambda share: share.round(2)
    )
    y = kinds.category(alt.Y, METHOD, list(dict.fromkeys(most_images_first[METHOD])))
    x = kinds.quantity(alt.X, MSE, **_LOG_AXIS)
    # a colour and a shape for each value; a click in the legend dims the marks of all other values (`opacity`)
    coloured = kinds.hue(NEEDS, frame, shapes=("square", "circle", "triangle-up", "cross"), columns=2)
    means = kinds.points_with_intervals(MSE, y, _ERROR_HOVER, coloured, where="datum.mark == 'mean'", scale=x, size=110)
    # open marks, which `points_with_intervals` does not draw
    models: Any = alt.Chart().transform_filter("datum.mark == 'model'").mark_point(size=22)
    models = models.encode(x=x, y=y, color=coloured.colour(), opacity=coloured.opacity())
    models = models.encode(tooltip=kinds.tooltips(_ERROR_HOVER))

    title = style.title(
        f"How well does a test of {100 * methods.parameters['budget']:.3g} % of the images measure all of them?",
        "Each filled mark is the squared error against all images, the mean over models and attributes with its 95 % "
        "interval; each open mark is one model.",
        "Item banks are from other networks; what the choice of images adds to a bank is the difference from random "
        "draws with the same bank.",
    )
    chart = kinds.layers(models, means)
    return style.faceted(chart, frame, title, _FILTERS, height=28 * frame[METHOD].nunique(), columns=2)


def methods_statements(methods: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the squared error of the default test relative to evenly drawn images, one or two for each target.

    A target is what a test estimates, such as accuracy. Tests with a known bias are left out. Where a test chose its
    images by an item bank, the sentences also compare it with random images and the same bank.
    methods: lines of the table adaptive_methods for one data set.

    >>> line = {"dataset": "zoo", "target": "accuracy", "budget": 0.25, "share": 0.25, "warning": None}
    >>> static = line | {"method": "Static 3", "ratio": 1.0, **dict(zip(("policy", "estimator"), replay.BASELINE))}
    >>> ours = line | dict(zip(("policy", "estimator"), replay.DEFAULT)) | {"method": " + ".join(replay.DEFAULT)}
    >>> ours |= {"ratio": 0.6, "ratio_low": 0.4, "ratio_high": 0.9}
    >>> [statement] = methods_statements(pd.DataFrame([static, ours]))
    >>> print(statement.sentence)
    With 25 % of the images of zoo, an adaptive test (optimal_allocation + stratified) has 0.60 [0.40, 0.90] times the \
squared error in accuracy of as many evenly drawn images (Static 3).
    """
    # the table also has the baseline with twice as many images; all other tests are of the smallest budget
    has_smallest_budget = methods[live.BUDGET] == methods[live.BUDGET].min()
    for target, tests in methods[has_smallest_budget].groupby(TARGET, sort=False):
        is_baseline = replay.is_baseline(tests)
        is_unbiased = tests[live.WARNING].isna()
        compared = tests[~is_baseline & is_unbiased & tests[replay.RATIO].notna()].drop_duplicates(METHOD)
        by_method = compared.set_index(METHOD).to_dict("index")
        # there is a default method for images with levels (easy, medium, hard), and one for images without
        default = next((name for name in _DEFAULT_METHODS if name in by_method), None)
        if default is None:  # no ratio is known: the error of the default method or of the baseline is missing
            continue

        of_default = by_method[default]
        dataset, baseline = of_default[DATASET], tests.loc[is_baseline, METHOD].iloc[0]
        sentence = (
            f"With {100 * of_default[SHARE]:.3g} % of the images of {dataset}, an adaptive test ({default}) has "
            f"{format_with_interval(of_default, replay.RATIO)} times the squared error in {target} of as many evenly "
            f"drawn images ({baseline})."
        )
        chosen_by_bank = by_method.get(_DEFAULT_WITH_BANK)
        random_draws = by_method.get(_RANDOM_WITH_BANK)
        has_bank = chosen_by_bank is not None and random_draws is not None
        if has_bank:
            sentence += (
                f" With an item bank random images have {format_with_interval(random_draws, replay.RATIO)} times; "
                "choosing images by the bank multiplies that by "
                f"{format_with_interval(chosen_by_bank, replay.SAME_BANK)}."
            )
        smallest_first = compared.sort_values(replay.RATIO, kind="stable")
        hover = (METHOD, *interval_columns(replay.RATIO))
        # the line at 1 is the error of evenly drawn images
        yield Statement(sentence, small.dots(smallest_first, METHOD, replay.RATIO, hover, line=1.0))

        if has_bank:
            yield Statement(
                f"On {dataset}, images chosen by an item bank ({_DEFAULT_WITH_BANK}) have "
                f"{format_with_interval(chosen_by_bank, replay.RATIO)} times the squared error in {target} of as many "
                "evenly drawn images."
            )


def curves_figure(curves: Table) -> alt.FacetChart:
    """Squared error against the share of images evaluated, a line and a colour for each policy and estimator.

    curves: the table adaptive_curves.
    """
    frame = _prepare_errors(curves.frame)
    coloured = kinds.hue(POLICY_AND_ESTIMATOR, frame, shapes=_METHOD_SHAPES, columns=3)
    x = kinds.quantity(alt.X, SHARE, "share of all images evaluated", grid=True, nice=False)
    y = kinds.quantity(alt.Y, MSE, **_LOG_AXIS)
    chart = kinds.points_with_intervals(MSE, x, _ERROR_HOVER, coloured, joined=POLICY_AND_ESTIMATOR, scale=y, size=70)
    title = style.title(
        "How much smaller is the error of a larger test?",
        "Each mark is the mean squared error of a policy and its estimator over models and attributes, with its 95 % "
        "interval.",
        "fisher_cat chooses images that rank models; its error is that of the bank's predictions of all others.",
    )
    return style.faceted(chart, frame, title, _FILTERS, height=300, columns=2)


def exposure_figure(exposure: Table, curves: Table) -> alt.FacetChart:
    """How well each test orders the models, and how far all tests evaluate the same images; a panel for each measure.

    Colours are pairs of policy and estimator (column `way`).

    exposure: the table adaptive_exposure, with the measures of order by ability and of shared images.
    curves:   the table adaptive_curves, with the measure of order by estimated accuracy.
    """
    of_accuracy = curves.frame[curves.frame[TARGET] == "accuracy"]
    frames = [_lines_of_measure(of_accuracy, replay.RANK_TAU)]
    frames += [_lines_of_measure(exposure.frame, column) for column in (ABILITY_TAU, LARGEST, NEVER, COMMON)]
    frame = pd.concat(frames).dropna(subset=MEASURE).reset_index(drop=True)
    frame["way"] = frame[POLICY] + " + " + frame[ESTIMATOR]
    frame["panel"] = style.panels(frame, DATASET, "measure")
    frame["asked"] = (100 * frame[live.BUDGET]).map("{:.3g} %".format)  # the budget as text: a category of the x axis

    coloured = kinds.hue(POLICY_AND_ESTIMATOR, frame, shapes=_METHOD_SHAPES, columns=3)
    smallest_budget_first = alt.EncodingSortField(live.BUDGET, op="min")
    x = kinds.category(alt.X, "asked", smallest_budget_first, "share of all images evaluated", bands=True)
    y = kinds.quantity(alt.Y, MEASURE, "", nice=False)
    hover = (*_KIND_COLUMNS, *interval_columns(MEASURE))
    chart = kinds.points_with_intervals(MEASURE, x, hover, coloured, dodge=POLICY_AND_ESTIMATOR, scale=y, size=40)
    title = style.title(
        "Do few images order the models, and are they always the same ones?",
        "Marks are Kendall's tau between the order by a test and the order by all images, with its 95 % interval over "
        "networks, and how similar the images of the models' tests are: images that every test evaluates soon leak.",
    )
    panels = style.faceted(chart, frame, title, (DATASET,), height=200, columns=3)
    return panels.resolve_scale(y="independent")  # each panel has another measure


def _lines_of_measure(frame: pd.DataFrame, column: Column) -> pd.DataFrame:
    """One measure of every kind of test, under the names that all measures share in `exposure_figure`.

    The values of `column` and the ends of its interval become the columns of MEASURE. The ends are missing for a column
    without an interval. A further column, `measure`, has the title of the measure's panel.
    """
    renamed = zip(interval_columns(MEASURE), interval_columns(column), strict=True)
    values = {new_name: frame.get(old_name) for new_name, old_name in renamed}  # None: no such column
    return frame[list(_KIND_COLUMNS)].assign(**values, measure=_TITLE_OF_MEASURE[column])


def _prepare_errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Prepare the lines of a table of errors for a logarithmic axis.

    Lines without an error above 0 are left out, as such an axis cannot show them; intervals that reach down to 0 are
    removed. New columns are what each test needs (`kind`), its policy and estimator (`way`), the readable name of its
    target (`named`) and its panel.
    """
    frame = frame[frame[replay.MSE] > 0].reset_index(drop=True)
    # in figures the error is named `mse` (MSE), which matches the names of its ends in the table: mse_low and mse_high
    frame = frame.rename(columns={replay.MSE: MSE})
    has_no_interval = ~(frame[MSE.low] > 0)  # NaN or 0
    frame.loc[has_no_interval, [MSE.low, MSE.high]] = None

    uses_bank = frame[ESTIMATOR].isin(replay.BANK_ESTIMATORS)
    # a test has one kind: each line overrides the one before it, so a bias counts more than the need of a bank
    needs = frame[POLICY].map(_NEEDS_OF_POLICY).fillna(_ADAPTIVE)
    needs = needs.where(~uses_bank, _NEEDS_BANK)
    needs = needs.where(frame[live.WARNING].isna(), _BIASED)  # the only warning of a test is that it is biased

    # The long title of a target names levels. A data set without levels keeps the target's short name; it is recognised
    # by the estimator of its baseline (policy, estimator), which no other data set has
    estimator_without_levels = replay.BASELINE_WITHOUT_LEVELS[1]
    is_without_levels = frame.groupby(DATASET)[ESTIMATOR].transform(
        lambda estimators: (estimators == estimator_without_levels).any()
    )
    target_name = frame[TARGET].map(_TITLE_OF_TARGET).where(~is_without_levels.astype(bool), frame[TARGET])
    frame = frame.assign(kind=needs, way=frame[POLICY] + " + " + frame[ESTIMATOR], named=target_name)
    return frame.assign(panel=style.panels(frame, DATASET, "named"))


def evaluated_figure(evaluated: Table) -> alt.FacetChart:
    """Mean number of images of each level in a session, a row for each model; a panel for each mapping.

    A session is a class and an attribute. A right easy, medium or hard image of the first round earns it 1, 2 or 4
    points. A mapping determines, by the points, how many images of each level its second round has. Colours are levels.
    The most accurate model comes first.

    evaluated: the table adaptive_asked.
    """
    frame = evaluated.frame.assign(named="second round by mapping " + evaluated.frame["mapping"])
    frame["panel"] = style.panels(frame, DATASET, "named")

    x = kinds.quantity(alt.X, replay.EVALUATED, grid=True, zero=True)
    y = kinds.category(alt.Y, MODEL, alt.EncodingSortField(TOP1, op="max", order="descending"))
    chart = kinds.scatter(x, y, evaluated.columns, kinds.hue(LEVEL, frame))
    title = style.title(
        replay.ADAPTIVE_ASKED.question,
        "Each mark is the mean number of images of a level in a session; the most accurate model comes first.",
        "The first round is the same for all; the second depends on its points. Table 1 of Huang et al. (2025) has "
        "averages of this kind.",
    )
    return style.faceted(chart, frame, title, _FILTERS, columns=2, row=22)


def evaluated_statements(evaluated: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on how many hard images the least and the most accurate model see in a session, on average.

    A session is a class and an attribute; a test evaluates some of its images in two rounds. A mapping gives the images
    of the second round by the right responses in the first; the sentence is about mapping Q, the default of the policy.

    evaluated: lines of the table adaptive_asked for one data set. No sentence where all models are equally accurate.

    >>> line = {"dataset": "zoo", "mapping": "Q", "level": "hard"}
    >>> lines = [line | {"model": "vgg", "top1": 0.5, "asked": 1.6}, line | {"model": "vit", "top1": 0.7, "asked": 3.9}]
    >>> [statement] = evaluated_statements(pd.DataFrame(lines))
    >>> print(statement.sentence)
    zoo: a session shows 1.6 hard images to vgg (top1 50 %) and 3.9 to vit (top1 70 %).
    """
    is_hard = (evaluated[LEVEL] == "hard") & (evaluated[replay.MAPPING] == "Q")
    hard_images = evaluated[is_hard].sort_values(TOP1, kind="stable").to_dict("records")
    if not hard_images or hard_images[0][TOP1] == hard_images[-1][TOP1]:
        return

    weakest, strongest = hard_images[0], hard_images[-1]
    to_weakest = f"{weakest[replay.EVALUATED]:.1f} hard images to {weakest[MODEL]} (top1 {100 * weakest[TOP1]:.0f} %)"
    to_strongest = f"{strongest[replay.EVALUATED]:.1f} to {strongest[MODEL]} (top1 {100 * strongest[TOP1]:.0f} %)"
    yield Statement(f"{weakest[DATASET]}: a session shows {to_weakest} and {to_strongest}.")


def trajectories_figure(trajectories: Table) -> alt.FacetChart:
    """How many sessions have each number of points after the first round, and what share of their images is right.

    A session is a class and an attribute. A right easy, medium or hard image of the first round earns it 1, 2 or 4
    points, 9 at most. There is a panel for each model. Bars are the shares of sessions with a number of points. One
    line is the share right of the images in their second round, the other the share right of all their images.

    trajectories: the table adaptive_trajectories.
    """
    frame = trajectories.frame.sort_values([DATASET, TOP1, "points"], kind="stable").reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL)
    # the column `line` is how a row of `long` is drawn: as a part of one of the two lines, or as a bar ("sessions")
    shares = pd.concat([frame.assign(value=frame[column], line=name) for column, name in _NAME_OF_SHARE.items()])
    shares = shares.dropna(subset=VALUE)
    long = pd.concat([frame.assign(line="sessions"), shares], ignore_index=True)

    points_of_first_round = list(range(10))  # 0 to 9: one easy, two medium and one hard image
    x = alt.X("points:O", title=replay.POINTS_OF_SESSION.meaning, scale=alt.Scale(domain=points_of_first_round))
    bars: Any = alt.Chart().transform_filter("datum.line == 'sessions'").mark_bar(color="#8b949e", opacity=0.5)
    # in this table the column SHARE is the share of the model's sessions that have this number of points
    bars = bars.encode(x=x, y=f"{SHARE}:Q", tooltip=kinds.tooltips(trajectories.columns))
    lines = kinds.points_with_intervals(
        VALUE,
        x,
        trajectories.columns,
        kinds.hue(LINE, long),
        joined=LINE,
        where="datum.line != 'sessions'",
        scale=kinds.quantity(alt.Y, VALUE, "share", domain=[0, 1], padding=0),
        size=60,
    )
    title = style.title(
        replay.ADAPTIVE_TRAJECTORIES.question,
        "Bars count sessions by their points after round one (1, 2 and 4 for an easy, medium and hard image); the "
        "weakest model comes first.",
        "More points bring harder images: the second round's share then underrates the session.",
    )
    return style.faceted(kinds.layers(bars, lines), long, title, _FILTERS, height=170, columns=3)


def sessions_figure(sessions: Table) -> alt.FacetChart:
    """A few sessions image by image, with a row for each session and a panel for each model.

    A session is a class and an attribute; a test evaluates some of its images in two rounds. A right image of the first
    round earns it 1, 2 or 4 points by level, 9 at most. A mark is an image: its colour is the level, and it is filled
    if the prediction is right.

    sessions: the table adaptive_sessions.
    """
    frame = sessions.frame.sort_values([DATASET, TOP1, "points", "session", "place"], kind="stable", ignore_index=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL)
    frame[RESPONSE] = frame["right"].map({True: "right", False: "wrong"})
    frame["row"] = frame["session"] + " · " + frame["points"].astype(str) + " of 9"
    frame[STEP] = frame["round"].map({1: "1st round, image ", 2: "2nd round, image "}) + frame["place"].astype(str)

    # a dashed line just before the first image of the second round. It is drawn once in each panel, since the first
    # round of a test has equally many images in every session
    begins_second_round = frame[frame["round"] == 2].groupby("panel")["place"].min()
    first_rows_of_panels = frame["panel"].drop_duplicates()
    frame["between"] = first_rows_of_panels.map(begins_second_round) - 0.5  # missing in all other rows
    dashes: Any = kinds.reference("between", on_y=False)
    dashes = dashes.transform_filter("isValid(datum.between)")

    places = sorted(frame["place"].unique().tolist())
    x = kinds.quantity(alt.X, replay.PLACE, domain=[0.5, places[-1] + 0.5], nice=False, padding=0)
    x.axis = alt.Axis(values=places, format=".0f")
    y = kinds.category(alt.Y, "row", alt.EncodingSortField("points", op="max", order="ascending"))

    coloured = kinds.hue(LEVEL, frame)
    colour: Any = coloured.colour()
    # marks are filled in the colour of their outline, but transparent where the prediction is wrong
    fill = alt.Fill(f"{LEVEL}:N", scale=colour["scale"], legend=colour["legend"])
    opacity_scale = alt.Scale(domain=["right", "wrong"], range=[1.0, 0.0])
    fill_opacity = alt.FillOpacity(f"{RESPONSE}:O", scale=opacity_scale, legend=None)
    image_and_truth = sessions.columns[-2:]  # IMAGE_ID and SESSION_TRUTH
    hover = (DATASET, MODEL, replay.SESSION, STEP, LEVEL, RESPONSE, *image_and_truth, replay.POINTS_OF_SESSION)
    marks = kinds.scatter(x, y, hover, coloured).mark_point(size=110, strokeWidth=2)
    marks = marks.encode(fill=fill, fillOpacity=fill_opacity)

    title = style.title(
        replay.ADAPTIVE_SESSIONS.question,
        "Each row is one session, with its points after round one (left of the dashes). Filled marks are right, open "
        "ones wrong.",
        "A few sessions of a few models are shown: the weakest model first, then from the fewest points to the most.",
    )
    return style.faceted(kinds.layers(dashes, marks), frame, title, _FILTERS, columns=2, row=22)


def live_figure(tests: Table) -> alt.FacetChart:
    """Estimate and interval of every live test, with the truth (the value on all images) where it is known.

    A live test evaluated its images itself (task=adaptive_test), unlike a test replayed on stored predictions. There is
    a row for each kind of test. Tests that differ only in their seed share a row, one below the other. Dots are
    estimates and crosses the truth, in two colours.

    tests: the table adaptive_tests.
    """
    frame = label_tests(tests.frame.dropna(subset=ESTIMATE))
    title = style.title(
        live.ADAPTIVE_TESTS.question,
        f"Each dot is the mean over attributes, from {_percents(frame[SHARE])} of the images.",
        "A cross is the same network on all images, where it was run on them too.",
    )
    largest_first = alt.EncodingSortField(ESTIMATE, op="max", order="descending")
    y = kinds.category(alt.Y, "row", largest_first, labelLimit=400)
    panels = _estimates_beside_truths(frame, y, (*_TEST_HOVER, *_COST_HOVER), title, offset_by=SEED)
    panels.spec.height = alt.Step(16, **{"for": "offset"})  # 16 pixels for each seed, not for each row
    return panels


def live_statements(tests: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on how often the intervals of live tests contain the truth, and on the time that the tests take.

    A live test evaluated its images itself (task=adaptive_test), unlike a test replayed on stored predictions. The
    truth is the value on all images. It and the time of a full run may be unknown; the sentence then omits them.

    tests: lines of the table adaptive_tests for one data set.

    >>> line = {"dataset": "zoo", "policy": "random", "target": "score", "share": 0.25, "covered": True}
    >>> [statement] = live_statements(pd.DataFrame([line | {"error_pp": -0.5, "time_share": None}]))
    >>> print(statement.sentence)
    zoo: 1 adaptive test of 25 % of the images: 1 of 1 intervals contain the true value, error 0.5 points.
    """
    is_first_target = tests[TARGET] == tests[TARGET].iloc[0]  # a test has a line for each target
    count = int(is_first_target.sum())
    plural = "s" if count > 1 else ""
    sentence = f"{tests[DATASET].iloc[0]}: {count} adaptive test{plural} of {_percents(tests[SHARE])} of the images"

    with_truth = tests.dropna(subset=live.COVERED)
    if len(with_truth):
        error = "error" if len(with_truth) == 1 else "largest error"
        points = with_truth[live.ERROR].abs().max()
        covered = f"{int(with_truth[live.COVERED].sum())} of {len(with_truth)} intervals contain the true value"
        sentence += f": {covered}, {error} {points:.1f} points"

    time_shares = tests[live.TIME_SHARE].dropna()
    if len(time_shares):
        sentence += f"; {_percents(time_shares)} of the time of a full run"
    yield Statement(f"{sentence}.")


def _percents(shares: pd.Series) -> str:
    """The range of shares in percent, such as "8 to 25 %"; a single number where all are equal as printed."""
    low, high = (f"{100 * share:.3g}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


def attributes_figure(attributes: Table) -> alt.FacetChart:
    """Estimates by attribute, from the first test of each model; a panel for each model and target.

    Dots are estimates and crosses the truth. Only the first EXAMPLE_TESTS models are drawn.
    attributes: the table adaptive_test_attributes.
    """
    frame = label_tests(attributes.frame.dropna(subset=ESTIMATE))
    first_tests = frame.drop_duplicates([DATASET, MODEL])[RUN_ID]  # ids of their runs, one for each model
    restrictions = ""
    if frame[RUN_ID].nunique() > len(first_tests):
        restrictions += " Of a model with several tests, the first is shown."
    if len(first_tests) > EXAMPLE_TESTS:
        restrictions += f" The first {EXAMPLE_TESTS} of {len(first_tests)} models are shown."

    frame = frame[frame[RUN_ID].isin(first_tests.head(EXAMPLE_TESTS))].reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL, "named")
    title = style.title(
        live.ADAPTIVE_TEST_ATTRIBUTES.question,
        "Each dot is one attribute, from the same few images, with its 95 % interval; a cross is all images of it."
        f"{restrictions}",
    )
    return _estimates_beside_truths(frame, kinds.category(alt.Y, ATTRIBUTE), _TEST_HOVER, title)


def _estimates_beside_truths(
    frame: pd.DataFrame, y: alt.Y, hover: tuple[Column, ...], title: alt.Title, offset_by: Column | None = None
) -> alt.FacetChart:
    """A chart of estimates with their intervals (dots), and of the values on all images (crosses) where known.

    frame:     lines of a table of live tests, prepared by `label_tests`.
    y:         the channel of the rows.
    hover:     the columns shown under the pointer.
    offset_by: lines of one row that differ in this column are drawn one below the other; None: they overlap.
    """
    estimate_name, truth_name = _SOURCE_NAMES  # what the legend calls dots and crosses
    ends = {"value_low": frame["low"], "value_high": frame["high"]}
    estimates = frame.assign(value=frame[ESTIMATE], **ends, source=estimate_name)
    truths = frame.assign(source=truth_name, value=frame[TRUTH])
    long = pd.concat([estimates, truths]).dropna(subset=VALUE).reset_index(drop=True)

    coloured = kinds.hue(SOURCE, long, shapes=("circle", "cross"))
    chart: Any = kinds.points_with_intervals(VALUE, y, (*interval_columns(VALUE), *hover), coloured, size=70)
    if offset_by is not None:
        chart = chart.encode(yOffset=alt.YOffset(f"{offset_by}:O"))
    return style.faceted(chart, long, title, _FILTERS, columns=2, row=18)


def truth_figure(attributes: Table) -> alt.FacetChart:
    """Estimates of all tests and attributes against the truth, where known; a panel for each method and target.

    Colours show whether the interval contains the truth.
    attributes: the table adaptive_test_attributes.
    """
    frame = label_tests(attributes.frame.dropna(subset=[ESTIMATE, TRUTH]))
    frame["panel"] = style.panels(frame, DATASET, POLICY_AND_ESTIMATOR, "named")

    # the diagonal from the lowest to the highest value, once in each panel
    first_rows_of_panels = frame.drop_duplicates("panel").index
    lowest = frame[["low", TRUTH]].min(axis=None)
    highest = frame[["high", TRUTH]].max(axis=None)
    frame = frame.assign(
        covered=frame[live.COVERED].map(_COVERED_IN_WORDS),
        value_low=frame["low"],  # the ends of the intervals, by the names of VALUE
        value_high=frame["high"],
        line_low=pd.Series(lowest, first_rows_of_panels),
        line_high=pd.Series(highest, first_rows_of_panels),
    )
    diagonal: Any = alt.Chart().transform_filter("isValid(datum.line_low)").mark_rule(strokeDash=[4, 3])
    diagonal = diagonal.encode(x="line_low:Q", x2="line_high:Q", y="line_low:Q", y2="line_high:Q")

    coloured = kinds.hue(INSIDE, frame, ("#0072b2", "#d55e00"), ("circle", "diamond"))
    x = kinds.quantity(alt.X, TRUTH, "on all images of the attribute")
    y = kinds.quantity(alt.Y, ESTIMATE, "estimated by the test")
    pale = alt.Chart().encode(x=x, color=coloured.colour(), opacity=alt.value(0.35))
    intervals = kinds.interval_marks(pale, VALUE, on_y=True)
    points = kinds.scatter(x, y, (*_TEST_HOVER, ATTRIBUTE), coloured, size=40)

    title = style.title(
        "Are the tests right about attributes?",
        "Each mark is one attribute of one test: its estimate with the 95 % interval, against the truth. On the dashes",
        "both are equal; of valid 95 % intervals one in twenty misses.",
    )
    return style.faceted(kinds.layers(diagonal, intervals, points), frame, title, _FILTERS, height=300, columns=2)


def label_tests(frame: pd.DataFrame) -> pd.DataFrame:
    """The lines of a table of live tests with the columns that figures need.

    New columns are policy and estimator (`way`), the readable name of the target (`named`), the name of the line's row
    in a figure (`row`) and its `panel`. A row is named by the model, and by the options and conditions in which the
    tests of the table differ, except the seed.
    """
    frame = frame.reset_index(drop=True)
    # the long title of a target names levels; only tests of images with levels estimate a score, too
    has_levels = frame[RUN_ID].isin(frame.loc[frame[TARGET] == "score", RUN_ID])
    target_name = frame[TARGET].map(_TITLE_OF_TARGET).where(has_levels, frame[TARGET])
    frame = frame.assign(way=frame[POLICY] + " + " + frame[ESTIMATOR], named=target_name)

    row = frame[MODEL].astype(object)
    for column, prefix in _PREFIX_BY_OPTION.items():
        if style.differs(frame[column]):  # an option that all tests share would only lengthen the names
            suffixes = ["" if pd.isna(value) else f" · {prefix}{value}" for value in frame[column]]
            row = row + pd.Series(suffixes, index=frame.index, dtype=object)
    return frame.assign(row=row, panel=style.panels(frame, DATASET, "named"))


FINDINGS = (
    Finding(
        "adaptive_methods",
        "Adaptive tests against evenly drawn images",
        (replay.ADAPTIVE_METHODS,),
        "Do fewer images suffice?",
        methods_statements,
    ),
    Finding(
        "adaptive_errors",
        "Error of adaptive tests",
        (replay.ADAPTIVE_ERRORS, replay.ADAPTIVE_METHODS),
        draw=errors_figure,
    ),
    Finding("adaptive_curves", "Error by share of images", (replay.ADAPTIVE_CURVES,), draw=curves_figure),
    Finding(
        "adaptive_exposure",
        "Order of the models, and images evaluated",
        (ADAPTIVE_EXPOSURE, replay.ADAPTIVE_CURVES),
        draw=exposure_figure,
    ),
    Finding(
        "adaptive_asked",
        "Images evaluated by level",
        (replay.ADAPTIVE_ASKED,),
        state=evaluated_statements,
        draw=evaluated_figure,
    ),
    Finding("adaptive_trajectories", "Where sessions go", (replay.ADAPTIVE_TRAJECTORIES,), draw=trajectories_figure),
    Finding("adaptive_sessions", "A few sessions", (replay.ADAPTIVE_SESSIONS,), draw=sessions_figure),
    Finding(
        "adaptive_tests",
        "Live adaptive tests",
        (live.ADAPTIVE_TESTS,),
        state=live_statements,
        draw=live_figure,
    ),
    Finding(
        "adaptive_test_attributes",
        "Live adaptive tests by attribute",
        (live.ADAPTIVE_TEST_ATTRIBUTES,),
        draw=attributes_figure,
    ),
    Finding("adaptive_truth", "Live tests and the truth", (live.ADAPTIVE_TEST_ATTRIBUTES,), draw=truth_figure),
)
