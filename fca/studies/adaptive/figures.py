"""Figures and statements of analysis=adaptive_replay and adaptive_tests, and `FINDINGS`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Finding, Statement
from fca.report.small import interval
from fca.store.columns import PREDICT_S, SHIFT
from fca.studies.adaptive import adaptive_replay as replay
from fca.studies.adaptive import adaptive_tests as live
from fca.studies.adaptive.adaptive_tests import ESTIMATE, ESTIMATOR, POLICY, SHARE, TARGET, TRUTH
from fca.studies.adaptive.exposure import ABILITY_TAU, ADAPTIVE_EXPOSURE, COMMON, LARGEST, METHOD, NEVER, REPEATS
from fca.studies.progressive.levels import ATTRIBUTE, LEVEL
from fca.tables import table
from fca.tables.table import COVERAGE, DATASET, MODEL, MODELS, NCL, PROTOCOL, RUN_ID, SEED, TOP1
from fca.types import Column, Table, with_interval

SHOWN = 6  # tests drawn by attribute
_EVEN, _ADAPTIVE = "evenly drawn", "adaptive, needs levels only"
_BANK, _BIASED = "needs an item bank", "biased by its adaptive draw"
_NEEDS = {"static_k": _EVEN, "random": _EVEN, "proportional": _EVEN}
_WITH_BANK = replay.BANK_ESTIMATORS
NEEDS = Column("kind", str, "", "what the test needs", {name: name for name in (_EVEN, _ADAPTIVE, _BANK, _BIASED)})
MSE = Column("mse", float, ".2f", "squared error (squared % points), log scale")
_WAYS = {
    " + ".join(way): replay.SAME_BANK_NAME.format(way[1]) if way in replay.RANDOM_DRAWS else " + ".join(way)
    for way in (*replay.METHODS, *replay.METHODS_WITHOUT_LEVELS)
}
WAY = Column("way", str, "", "policy and estimator", _WAYS)
_DEFAULTS = (" + ".join(replay.DEFAULT), " + ".join(replay.DEFAULT_WITHOUT_LEVELS))
_DEFAULT_OF_BANK = " + ".join(replay.DEFAULT_OF_BANK)
_RANDOM_DRAWS = replay.SAME_BANK_NAME.format(replay.DEFAULT_OF_BANK[1])
_TITLES = dict(TARGET.choices)
_MEASURES = (
    *(DATASET, MODEL, METHOD, NEEDS, TARGET, SHARE, *with_interval(MSE), *with_interval(replay.RATIO)),
    *(*with_interval(replay.SAME_BANK), replay.BIAS, COVERAGE, replay.UNDEFINED, replay.GROUPS, REPEATS),
)
_FILTERS = (DATASET, MODEL)
_LOG: dict[str, Any] = {"type": "log", "nice": False, "padding": 12}
VALUE = table.VALUE.with_format(".2%", "share right")
_RIGHT = {replay.RIGHT_SECOND: "right in the second round", replay.SESSION_TRUTH: "right of all the session's images"}
LINE = Column("line", str, "", "share", {name: name for name in _RIGHT.values()})
RESPONSE = Column("response", str, "", "prediction")
STEP = Column("step", str, "", "round and image")
MEASURE = VALUE.with_format(".2f", "value")
_SHOWN_BY = (DATASET, POLICY, ESTIMATOR, live.BUDGET, SHARE, MODELS, REPEATS)
_PANELS = {
    replay.RANK_TAU: "order by estimated accuracy, tau",
    ABILITY_TAU: "order by ability, tau",
    LARGEST: "tests that ask the most frequent image",
    NEVER: "images that no test asks",
    COMMON: "images of a test that another asks too",
}
_ESTIMATES = ("estimate with its 95 % interval", "all images")
SOURCE = Column("source", str, "", "images", {name: name for name in _ESTIMATES})
_COVERED = {True: "the true value is inside the interval", False: "outside"}
INSIDE = Column(live.COVERED, str, "", "truth", {name: name for name in _COVERED.values()})
_LIVE = (
    *(DATASET, MODEL, SHIFT, WAY, TARGET, ESTIMATE, live.LOW, live.HIGH, TRUTH),
    *(live.ERROR, *live.EVALUATED, SEED),
)
_COST = (live.N_EVALUATED, live.N_POOL, SHARE, live.ROUNDS, PREDICT_S, live.FULL_S, live.TIME_SHARE, live.WARNING)
_DISTINCT = {SHIFT: "", WAY: "", PROTOCOL: "", live.BUDGET: "budget ", live.WIDTH: "width ", NCL: "ncl "}


def errors_figure(errors: Table, methods: Table) -> alt.FacetChart:
    """Squared error of every method: an open dot a model, and a dot with its interval for the mean over models."""
    frame = _measured(pd.concat([methods.frame.assign(mark="mean"), errors.frame.assign(mark="model")]))
    coloured = kinds.hue(NEEDS, frame, shapes=("square", "circle", "triangle-up", "cross"), columns=2)
    most = methods.frame.sort_values(SHARE, ascending=False, kind="stable", key=lambda share: share.round(2))
    along = kinds.category(alt.Y, METHOD, list(dict.fromkeys(most[METHOD])))
    axis = kinds.quantity(alt.X, MSE, **_LOG)
    means = kinds.points_with_intervals(
        MSE, along, _MEASURES, coloured, where="datum.mark == 'mean'", scale=axis, size=110
    )
    each: Any = alt.Chart().transform_filter("datum.mark == 'model'").mark_point(size=22)
    each = each.encode(x=axis, y=along, color=coloured.colour(), opacity=coloured.opacity())
    title = style.title(
        f"How well does a test of {100 * methods.parameters['budget']:.3g} % of the images measure all of them?",
        "Each filled mark is the squared error against all images, the mean over models and attributes with its 95 % "
        "interval; each open mark is one model.",
        "Item banks are from other networks; what the choice of images adds to a bank is the "
        "difference from random draws "
        "with the same bank.",
    )
    chart = kinds.layers(each.encode(tooltip=kinds.tooltips(_MEASURES)), means)
    return style.faceted(chart, frame, title, _FILTERS, height=28 * frame[METHOD].nunique(), columns=2)


def methods_statements(methods: pd.DataFrame) -> Iterator[Statement]:
    """The squared error of the default test against evenly drawn images, and what a choice of images adds to a bank.

    >>> line = {"dataset": "zoo", "target": "accuracy", "budget": 0.25, "share": 0.25, "warning": None}
    >>> static = line | {"method": "Static 3", "ratio": 1.0, **dict(zip(("policy", "estimator"), replay.BASELINE))}
    >>> ours = line | dict(zip(("policy", "estimator"), replay.DEFAULT)) | {"method": " + ".join(replay.DEFAULT)}
    >>> ours |= {"ratio": 0.6, "ratio_low": 0.4, "ratio_high": 0.9}
    >>> [statement] = methods_statements(pd.DataFrame([static, ours]))
    >>> print(statement.sentence)
    With 25 % of the images of zoo, an adaptive test (optimal_allocation + stratified) has 0.60 [0.40, 0.90] times the \
squared error in accuracy of as many evenly drawn images (Static 3).
    """
    has_smallest_budget = methods[live.BUDGET] == methods[live.BUDGET].min()
    for target, tests in methods[has_smallest_budget].groupby(TARGET, sort=False):
        is_static = replay.is_baseline(tests)
        is_compared = ~is_static & tests[live.WARNING].isna() & tests[replay.RATIO].notna()
        compared = tests[is_compared].drop_duplicates(METHOD)
        by_method = compared.set_index(METHOD).to_dict("index")
        default = next((name for name in _DEFAULTS if name in by_method), None)
        if default is None:
            continue

        ours = by_method[default]
        dataset, static = ours[DATASET], tests.loc[is_static, METHOD].iloc[0]
        sentence = (
            f"With {100 * ours[SHARE]:.3g} % of the images of {dataset}, an adaptive test ({default}) has "
            f"{interval(ours, replay.RATIO)} times the squared error in {target} of as many evenly drawn images "
            f"({static})."
        )
        chosen_by_bank, random_draws = by_method.get(_DEFAULT_OF_BANK), by_method.get(_RANDOM_DRAWS)
        has_bank = chosen_by_bank is not None and random_draws is not None
        if has_bank:
            sentence += (
                f" With an item bank random images have {interval(random_draws, replay.RATIO)} times; choosing images "
                f"by the bank multiplies that by {interval(chosen_by_bank, replay.SAME_BANK)}."
            )
        smallest_first = compared.sort_values(replay.RATIO, kind="stable")
        hover = (METHOD, *with_interval(replay.RATIO))
        yield Statement(sentence, small.dots(smallest_first, METHOD, replay.RATIO, hover, line=1.0))

        if has_bank:
            yield Statement(
                f"On {dataset}, images chosen by an item bank ({_DEFAULT_OF_BANK}) have "
                f"{interval(chosen_by_bank, replay.RATIO)} times the squared error in {target} of as many evenly drawn "
                "images."
            )


def curves_figure(curves: Table) -> alt.FacetChart:
    """Squared error against the share of images evaluated, a line a policy."""
    frame = _measured(curves.frame)
    shapes = ("square", "diamond", "circle", "cross", "triangle-up", "triangle-down")
    coloured = kinds.hue(WAY, frame, shapes=shapes, columns=3)
    along = kinds.quantity(alt.X, SHARE, "share of all images evaluated", grid=True, nice=False)
    axis = kinds.quantity(alt.Y, MSE, **_LOG)
    chart = kinds.points_with_intervals(MSE, along, _MEASURES, coloured, joined=WAY, scale=axis, size=70)
    title = style.title(
        "How much smaller is the error of a larger test?",
        "Each mark is the mean squared error of a policy and its estimator over models and attributes, with its 95 % "
        "interval.",
        "fisher_cat chooses images that rank models; its error is that of the bank's predictions of all others.",
    )
    return style.faceted(chart, frame, title, _FILTERS, height=300, columns=2)


def exposure_figure(exposure: Table, curves: Table) -> alt.FacetChart:
    """How well each test orders the models, and how alike the images of all tests are; a panel a measure."""
    known, taus = exposure.frame, curves.frame[curves.frame[TARGET] == "accuracy"]
    parts = [(taus, replay.RANK_TAU), (known, ABILITY_TAU), (known, LARGEST), (known, NEVER), (known, COMMON)]
    long = []
    for frame, column in parts:
        ends = dict(zip(with_interval(MEASURE), with_interval(column), strict=True))
        values = {end: frame.get(name) for end, name in ends.items()}
        long.append(frame[list(_SHOWN_BY)].assign(**values, measure=_PANELS[column]))
    frame = pd.concat(long).dropna(subset=MEASURE).reset_index(drop=True)
    frame["way"] = frame[POLICY] + " + " + frame[ESTIMATOR]
    frame["panel"] = style.panels(frame, DATASET, "measure")
    shapes = ("square", "diamond", "circle", "cross", "triangle-up", "triangle-down")
    coloured = kinds.hue(WAY, frame, shapes=shapes, columns=3)
    frame["asked"] = (100 * frame[live.BUDGET]).map("{:.3g} %".format)
    order = alt.EncodingSortField(live.BUDGET, op="min")
    along = kinds.category(alt.X, "asked", order, "share of all images evaluated", bands=True)
    axis = kinds.quantity(alt.Y, MEASURE, "", nice=False)
    hover = (*_SHOWN_BY, *with_interval(MEASURE))
    chart = kinds.points_with_intervals(MEASURE, along, hover, coloured, dodge=WAY, scale=axis, size=40)
    title = style.title(
        "Do few images order the models, and are they always the same ones?",
        "Marks are Kendall's tau between the order by a test and the order by all images, with its 95 % interval over "
        "networks, and how alike the images of the models' tests are: those that every test asks are soon known.",
    )
    drawn = style.faceted(chart, frame, title, (DATASET,), height=200, columns=3)
    return drawn.resolve_scale(y="independent")


def _measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Errors above 0 with what each method needs, and a panel a data set and target; for a logarithmic axis."""
    frame = frame[frame[replay.MSE] > 0].rename(columns={replay.MSE: MSE}).reset_index(drop=True)
    frame.loc[~(frame[MSE.low] > 0), [MSE.low, MSE.high]] = None
    needs = frame[POLICY].map(_NEEDS).fillna(_ADAPTIVE).where(~frame[ESTIMATOR].isin(_WITH_BANK), _BANK)
    needs = needs.where(frame[live.WARNING].isna(), _BIASED)
    without = frame.groupby(DATASET)[ESTIMATOR].transform(
        lambda names: (names == replay.BASELINE_WITHOUT_LEVELS[1]).any()
    )
    named = frame[TARGET].map(_TITLES).where(~without.astype(bool), frame[TARGET])
    frame = frame.assign(kind=needs, way=frame[POLICY] + " + " + frame[ESTIMATOR], named=named)
    return frame.assign(panel=style.panels(frame, DATASET, "named"))


def evaluated_figure(evaluated: Table) -> alt.FacetChart:
    """Images a session by level, a row a model, the most accurate first; a panel a mapping."""
    frame = evaluated.frame.assign(named="second round by mapping " + evaluated.frame["mapping"])
    frame["panel"] = style.panels(frame, DATASET, "named")
    x = kinds.quantity(alt.X, replay.EVALUATED, grid=True, zero=True)
    y = kinds.category(alt.Y, MODEL, alt.EncodingSortField(TOP1, op="max", order="descending"))
    chart = kinds.scatter(x, y, evaluated.columns, kinds.hue(LEVEL, frame))
    title = style.title(
        replay.ADAPTIVE_ASKED.question,
        "Each mark is the mean number of images of a level in a session; the most accurate model comes first.",
        "The first round is the same for all;"
        " the second depends on its points. Table 1 of Huang et al. (2025) has averages of this kind.",
    )
    return style.faceted(chart, frame, title, _FILTERS, columns=2, row=22)


def evaluated_statements(evaluated: pd.DataFrame) -> Iterator[Statement]:
    """How many hard images a session has for the weakest and for the most accurate model.

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
    few = f"{weakest[replay.EVALUATED]:.1f} hard images to {weakest[MODEL]} (top1 {100 * weakest[TOP1]:.0f} %)"
    many = f"{strongest[replay.EVALUATED]:.1f} to {strongest[MODEL]} (top1 {100 * strongest[TOP1]:.0f} %)"
    yield Statement(f"{weakest[DATASET]}: a session shows {few} and {many}.")


def trajectories_figure(trajectories: Table) -> alt.FacetChart:
    """How many sessions have how many points after round one, and what they then get right; a panel a model."""
    frame = trajectories.frame.sort_values([DATASET, TOP1, "points"], kind="stable").reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL)
    long = pd.concat([frame.assign(value=frame[column], line=name) for column, name in _RIGHT.items()])
    long = pd.concat([frame.assign(line="sessions"), long.dropna(subset=VALUE)], ignore_index=True)
    along = alt.X("points:O", title=replay.POINTS_OF_SESSION.meaning, scale=alt.Scale(domain=list(range(10))))
    axis = kinds.quantity(alt.Y, VALUE, "share", domain=[0, 1], padding=0)
    bars: Any = alt.Chart().transform_filter("datum.line == 'sessions'").mark_bar(color="#8b949e", opacity=0.5)
    bars = bars.encode(x=along, y=f"{SHARE}:Q", tooltip=kinds.tooltips(trajectories.columns))
    where: dict[str, Any] = {"where": "datum.line != 'sessions'", "scale": axis, "size": 60}
    coloured = kinds.hue(LINE, long)
    lines = kinds.points_with_intervals(VALUE, along, trajectories.columns, coloured, joined=LINE, **where)
    title = style.title(
        replay.ADAPTIVE_TRAJECTORIES.question,
        "Bars count sessions by their points after round one (1, 2 and 4 for an easy, medium and "
        "hard image); the weakest",
        "model comes first. More points bring harder images: the second round's share then underrates the session.",
    )
    return style.faceted(kinds.layers(bars, lines), long, title, _FILTERS, height=170, columns=3)


def sessions_figure(sessions: Table) -> alt.FacetChart:
    """A few sessions image by image: level by colour, filled where right; a panel a model."""
    frame = sessions.frame.sort_values([DATASET, TOP1, "points", "session", "place"], kind="stable", ignore_index=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL)
    frame[RESPONSE] = frame["right"].map({True: "right", False: "wrong"})
    frame["row"] = frame["session"] + " · " + frame["points"].astype(str) + " of 9"
    frame[STEP] = frame["round"].map({1: "1st round, image ", 2: "2nd round, image "}) + frame["place"].astype(str)
    starts = frame.loc[frame["round"] == 2, "place"].min() - 0.5
    frame["between"] = pd.Series(starts, index=frame.drop_duplicates("panel").index)
    places = sorted(frame["place"].unique().tolist())
    x = kinds.quantity(alt.X, replay.PLACE, domain=[0.5, places[-1] + 0.5], nice=False, padding=0)
    x.axis = alt.Axis(values=places, format=".0f")
    y = kinds.category(alt.Y, "row", alt.EncodingSortField("points", op="max", order="ascending"))
    coloured = kinds.hue(LEVEL, frame)
    colour: Any = coloured.colour()
    fill = alt.Fill(f"{LEVEL}:N", scale=colour["scale"], legend=colour["legend"])
    filled = alt.FillOpacity(f"{RESPONSE}:O", scale=alt.Scale(domain=["right", "wrong"], range=[1.0, 0.0]), legend=None)
    hover = (DATASET, MODEL, replay.SESSION, STEP, LEVEL, RESPONSE, *sessions.columns[-2:], replay.POINTS_OF_SESSION)
    marks = kinds.scatter(x, y, hover, coloured).mark_point(size=110, strokeWidth=2)
    marks = marks.encode(fill=fill, fillOpacity=filled)
    dashes: Any = kinds.reference("between", upright=False)
    title = style.title(
        replay.ADAPTIVE_SESSIONS.question,
        "Each row is one session, with its points after round one (left of the dashes). Filled marks "
        "are right, open ones "
        "wrong.",
        "A few sessions of a few models are shown: the weakest model first, then from the fewest points to the most.",
    )
    chart = kinds.layers(dashes.transform_filter("isValid(datum.between)"), marks)
    return style.faceted(chart, frame, title, _FILTERS, columns=2, row=22)


def live_figure(tests: Table) -> alt.FacetChart:
    """Estimate and interval of every test, with the truth where it is known; a row a kind of test, seeds beside."""
    frame = named(tests.frame.dropna(subset=ESTIMATE))
    title = style.title(
        live.ADAPTIVE_TESTS.question,
        f"Each dot is the mean over attributes, from {_percents(frame[SHARE])} of the images.",
        "A cross is the same network on all images, where it was run on them too.",
    )
    order = alt.EncodingSortField(ESTIMATE, op="max", order="descending")
    along = kinds.category(alt.Y, "row", order, labelLimit=400)
    drawn = _estimates(frame, along, (*_LIVE, *_COST), title, beside=SEED)
    drawn.spec.height = alt.Step(16, **{"for": "offset"})
    return drawn


def live_statements(tests: pd.DataFrame) -> Iterator[Statement]:
    """How often the intervals contained the truth, and the cost of the tests beside a full run.

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
    low, high = (f"{100 * share:.3g}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


def attributes_figure(attributes: Table) -> alt.FacetChart:
    """The same by attribute, of one test a model; a panel a model and target."""
    frame = named(attributes.frame.dropna(subset=ESTIMATE))
    first = frame.drop_duplicates([DATASET, MODEL])[RUN_ID].head(SHOWN)
    some = "" if set(frame[RUN_ID]) == set(first) else " Of a model with several tests, the first is shown."
    frame = frame[frame[RUN_ID].isin(first)].reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL, "named")
    title = style.title(
        live.ADAPTIVE_TEST_ATTRIBUTES.question,
        "Each dot is one attribute, from the same few images, with its 95 % interval; a cross is all images of it."
        f"{some}",
    )
    return _estimates(frame, kinds.category(alt.Y, ATTRIBUTE), _LIVE, title)


def _estimates(
    frame: pd.DataFrame, along: alt.Y, hover: tuple[Column, ...], title: alt.Title, beside: Column | None = None
) -> alt.FacetChart:
    """Estimates with their intervals, and the values on all images."""
    estimates = frame.assign(value=frame[ESTIMATE], value_low=frame["low"], value_high=frame["high"])
    parts = (estimates.assign(source=_ESTIMATES[0]), frame.assign(source=_ESTIMATES[1], value=frame[TRUTH]))
    long = pd.concat(parts).dropna(subset=VALUE).reset_index(drop=True)
    coloured = kinds.hue(SOURCE, long, shapes=("circle", "cross"))
    chart: Any = kinds.points_with_intervals(VALUE, along, (*with_interval(VALUE), *hover), coloured, size=70)
    if beside is not None:
        chart = chart.encode(yOffset=alt.YOffset(f"{beside}:O"))
    return style.faceted(chart, long, title, _FILTERS, columns=2, row=18)


def truth_figure(attributes: Table) -> alt.FacetChart:
    """Estimates of all tests and attributes against the truth; a panel a way to test and target."""
    frame = named(attributes.frame.dropna(subset=[ESTIMATE, TRUTH]))
    frame["panel"] = style.panels(frame, DATASET, WAY, "named")
    ends = {"low": frame[["low", TRUTH]].min(axis=None), "high": frame[["high", TRUTH]].max(axis=None)}
    lines = {f"line_{end}": pd.Series(at, frame.drop_duplicates("panel").index) for end, at in ends.items()}
    covered = frame[live.COVERED].map(_COVERED)
    frame = frame.assign(covered=covered, value_low=frame["low"], value_high=frame["high"], **lines)
    coloured = kinds.hue(INSIDE, frame, ("#0072b2", "#d55e00"), ("circle", "diamond"))
    x = kinds.quantity(alt.X, TRUTH, "on all images of the attribute")
    y = kinds.quantity(alt.Y, ESTIMATE, "estimated by the test")
    rules = kinds.interval(alt.Chart().encode(x=x, color=coloured.colour(), opacity=alt.value(0.35)), VALUE, True)
    points = kinds.scatter(x, y, (*_LIVE, ATTRIBUTE), coloured, size=40)
    diagonal: Any = alt.Chart().transform_filter("isValid(datum.line_low)").mark_rule(strokeDash=[4, 3])
    diagonal = diagonal.encode(x="line_low:Q", x2="line_high:Q", y="line_low:Q", y2="line_high:Q")
    title = style.title(
        "Are the tests right about attributes?",
        "Each mark is one attribute of one test: its estimate with the 95 % interval, against the truth. On the dashes",
        "both are equal; of valid 95 % intervals one in twenty misses.",
    )
    return style.faceted(kinds.layers(diagonal, rules, points), frame, title, _FILTERS, height=300, columns=2)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """With the way of each test (policy and estimator), a name for tests that differ in more than the seed, and panels
    by target."""
    frame = frame.reset_index(drop=True)
    named = frame[TARGET].map(_TITLES).where(frame[ESTIMATOR] != replay.BASELINE_WITHOUT_LEVELS[1], frame[TARGET])
    frame = frame.assign(way=frame[POLICY] + " + " + frame[ESTIMATOR], named=named)
    row = frame[MODEL].astype(object)
    for column, word in _DISTINCT.items():
        if style.differs(frame[column]):
            row = row + frame[column].map(lambda value, word=word: "" if pd.isna(value) else f" · {word}{value}")
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
        "Order of the models, and images asked",
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
