"""Figures and headlines of analysis=adaptive_replay and adaptive_tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Answer, Figure
from fca.report.small import interval
from fca.store.columns import PREDICT_S, SHIFT
from fca.studies.adaptive import adaptive_tests as live
from fca.studies.adaptive import replay
from fca.studies.adaptive.adaptive_tests import ESTIMATE, ESTIMATOR, POLICY, SHARE, TARGET, TRUTH
from fca.studies.adaptive.exposure import ABILITY_TAU, COMMON, LARGEST, METHOD, NEVER, REPEATS
from fca.studies.table import ATTRIBUTE, DATASET, LEVEL, MODEL, MODELS, NCL, PROTOCOL, RUN_ID, SEED, TOP1
from fca.types import Column, Table, with_interval

SHOWN = 6  # tests drawn by attribute
_EVEN, _ADAPTIVE = "evenly drawn", "adaptive, needs levels only"
_BANK, _BIASED = "needs an item bank", "biased by its adaptive draw"
_NEEDS = {"static_k": _EVEN, "random": _EVEN, "proportional": _EVEN}
_WITH_BANK = replay.OF_BANK
NEEDS = Column("kind", str, "", "what the test needs", {name: name for name in (_EVEN, _ADAPTIVE, _BANK, _BIASED)})
MSE = Column("mse", float, ".2f", "squared error (squared % points), log scale")
_WAYS = {
    " + ".join(way): replay.SAME_BANK_NAME.format(way[1]) if way in replay.RANDOM_DRAWS else " + ".join(way)
    for way in (*replay.METHODS, *replay.WITHOUT_LEVELS)
}
WAY = Column("way", str, "", "policy and estimator", _WAYS)
_DEFAULTS = (" + ".join(replay.DEFAULT), " + ".join(replay.DEFAULT_WITHOUT))
_DEFAULT_OF_BANK = " + ".join(replay.DEFAULT_OF_BANK)
_RANDOM_DRAWS = replay.SAME_BANK_NAME.format(replay.DEFAULT_OF_BANK[1])
_TITLES = dict(TARGET.choices)
_MEASURES = (
    *(DATASET, MODEL, METHOD, NEEDS, TARGET, SHARE, *with_interval(MSE), *with_interval(replay.RATIO)),
    *(*with_interval(replay.SAME_BANK), replay.BIAS, replay.COVERAGE, replay.UNDEFINED, replay.GROUPS, REPEATS),
)
_FILTERS = (DATASET, MODEL)
_LOG: dict[str, Any] = {"type": "log", "nice": False, "padding": 12}
VALUE = Column("value", float, ".2%", "share right")
_RIGHT = {replay.RIGHT_SECOND: "right in the second round", replay.WHOLE: "right of all the session's images"}
LINE = Column("line", str, "", "share", {name: name for name in _RIGHT.values()})
RESPONSE = Column("response", str, "", "prediction")
STEP = Column("step", str, "", "round and image")
MEASURE = Column("value", float, ".2f", "value")
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
    without = frame.groupby(DATASET)[ESTIMATOR].transform(lambda names: (names == replay.BASE_WITHOUT[1]).any())
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
        "Do tests of different models evaluate different images?",
        "Each mark is the mean number of images of a level in a session; the most accurate model comes first.",
        "The first round is the same for all;"
        " the second depends on its points. Table 1 of Huang et al. (2025) has averages of this kind.",
    )
    return style.faceted(chart, frame, title, _FILTERS, columns=2, row=22)


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
        "Where do sessions go after their first round?",
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
        "How does a single session go?",
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
        "How accurate are live adaptive tests?",
        f"Each dot is the mean over attributes, from {_percents(frame[SHARE])} of the images.",
        "A cross is the same network on all images, where it was run on them too.",
    )
    order = alt.EncodingSortField(ESTIMATE, op="max", order="descending")
    along = kinds.category(alt.Y, "row", order, labelLimit=400)
    drawn = _estimates(frame, along, (*_LIVE, *_COST), title, beside=SEED)
    drawn.spec.height = alt.Step(16, **{"for": "offset"})
    return drawn


def attributes_figure(attributes: Table) -> alt.FacetChart:
    """The same by attribute, of one test a model; a panel a model and target."""
    frame = named(attributes.frame.dropna(subset=ESTIMATE))
    first = frame.drop_duplicates([DATASET, MODEL])[RUN_ID].head(SHOWN)
    some = "" if set(frame[RUN_ID]) == set(first) else " Of a model with several tests, the first is shown."
    frame = frame[frame[RUN_ID].isin(first)].reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET, MODEL, "named")
    title = style.title(
        "How accurate are live adaptive tests on each attribute?",
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
    named = frame[TARGET].map(_TITLES).where(frame[ESTIMATOR] != replay.BASE_WITHOUT[1], frame[TARGET])
    frame = frame.assign(way=frame[POLICY] + " + " + frame[ESTIMATOR], named=named)
    row = frame[MODEL].astype(object)
    for column, word in _DISTINCT.items():
        if style.differs(frame[column]):
            row = row + frame[column].map(lambda value, word=word: "" if pd.isna(value) else f" · {word}{value}")
    return frame.assign(row=row, panel=style.panels(frame, DATASET, "named"))


def _percents(shares: pd.Series) -> str:
    low, high = (f"{100 * share:.3g}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


def method_headlines(methods: pd.DataFrame) -> Iterator[str]:
    """Error of the default test, and of the default with an item bank beside random draws with the same bank.

    >>> line = {"dataset": "zoo", "target": "score", "budget": 0.25, "share": 0.25, "models": 6, "warning": None}
    >>> static = line | {"method": "Static 3", "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0}
    >>> static |= dict(zip(("policy", "estimator"), replay.BASE))
    >>> ours = line | {"method": " + ".join(replay.DEFAULT), "ratio": 0.6}
    >>> ours |= dict(zip(("policy", "estimator"), replay.DEFAULT))
    >>> list(method_headlines(pd.DataFrame([static, ours | {"ratio_low": 0.4, "ratio_high": 0.9}])))
    ['zoo: with 25 % of the images, the squared error of score relative to Static 3 is 0.60 [0.40, 0.90] for \
optimal_allocation + stratified.']
    """
    for (dataset, target), part in methods.groupby([DATASET, TARGET], sort=False):
        part = part[part["budget"] == part["budget"].min()]
        base = part[replay.is_base(part)]
        ratios = part.dropna(subset="ratio").drop_duplicates("method").set_index("method").to_dict("index")
        default = next((name for name in _DEFAULTS if name in ratios), None)
        if base.empty or default is None:
            continue

        share, static = _percents(base[SHARE].head(1)), base["method"].iloc[0]
        sentence = f"{dataset}: with {share} of the images, the squared error of {target} relative to {static} is "
        sentence += f"{_interval(ratios[default], replay.RATIO)} for {default}"
        with_bank, random = ratios.get(_DEFAULT_OF_BANK), ratios.get(_RANDOM_DRAWS)
        if with_bank is not None and random is not None:
            sentence += f"; with an item bank {_interval(random, replay.RATIO)} for random draws and "
            sentence += f"{_interval(with_bank, replay.RATIO)} for {_DEFAULT_OF_BANK}, "
            sentence += f"{_interval(with_bank, replay.SAME_BANK)} times that of the random draws"
        yield f"{sentence}."


def _interval(line: dict[Any, Any], column: Column) -> str:
    """A ratio with its interval, where there is one."""
    ends = "" if pd.isna(line[column.low]) else f" [{line[column.low]:.2f}, {line[column.high]:.2f}]"
    return f"{line[column]:.2f}{ends}"


def evaluated_headlines(evaluated: pd.DataFrame) -> Iterator[str]:
    """How many hard images a session has for the weakest and for the most accurate model.

    >>> line = {"dataset": "zoo", "mapping": "Q", "level": "hard"}
    >>> lines = [line | {"model": "vgg", "top1": 0.5, "asked": 1.6}, line | {"model": "vit", "top1": 0.7, "asked": 3.9}]
    >>> list(evaluated_headlines(pd.DataFrame(lines)))
    ['zoo: a session shows 1.6 hard images to vgg (top1 50 %) and 3.9 to vit (top1 70 %).']
    """
    hard = evaluated[(evaluated[LEVEL] == "hard") & (evaluated["mapping"] == "Q")]
    for dataset, part in hard.groupby(DATASET, sort=False):
        ends = part.sort_values(TOP1, kind="stable").iloc[[0, -1]].to_dict("records")
        weak, strong = (f"to {end['model']} (top1 {100 * end['top1']:.0f} %)" for end in ends)
        few, many = (f"{end['asked']:.1f}" for end in ends)
        if len(part) > 1 and ends[0][TOP1] < ends[1][TOP1]:
            yield f"{dataset}: a session shows {few} hard images {weak} and {many} {strong}."


def live_headlines(tests: pd.DataFrame) -> Iterator[str]:
    """How often the intervals contained the truth, and the cost of the tests beside a full run.

    >>> line = {"dataset": "zoo", "policy": "random", "target": "score", "share": 0.25, "covered": True}
    >>> print(*live_headlines(pd.DataFrame([line | {"error_pp": -0.5, "time_share": None}])))
    zoo: 1 adaptive test of 25 % of the images: 1 of 1 intervals contain the true value, error 0.5 points.
    """
    for dataset, part in tests.groupby(DATASET, sort=False):
        count = int((part[TARGET] == part[TARGET].iloc[0]).sum())
        line = f"{dataset}: {count} adaptive test{'s' if count > 1 else ''} of {_percents(part[SHARE])} of the images"
        known = part.dropna(subset="covered")
        if len(known):
            line += f": {int(known['covered'].sum())} of {len(known)} intervals contain the true value, "
            error = "error" if len(known) == 1 else "largest error"
            line += f"{error} {known['error_pp'].abs().max():.1f} points"
        timed = part["time_share"].dropna()
        yield line + (f"; {_percents(timed)} of the time of a full run." if len(timed) else ".")


def error_answer(methods: pd.DataFrame) -> tuple[str, Any] | None:
    """The squared error of the default test against evenly drawn images, and what a choice of images adds to a bank.

    >>> line = {"dataset": "zoo", "target": "accuracy", "budget": 0.25, "share": 0.25, "warning": None}
    >>> static = line | {"method": "Static 3", "ratio": 1.0, **dict(zip(("policy", "estimator"), replay.BASE))}
    >>> ours = line | dict(zip(("policy", "estimator"), replay.DEFAULT)) | {"method": " + ".join(replay.DEFAULT)}
    >>> print(error_answer(pd.DataFrame([static, ours | {"ratio": 0.6, "ratio_low": 0.4, "ratio_high": 0.9}]))[0])
    With 25 % of the images of zoo, an adaptive test (optimal_allocation + stratified) has 0.60 [0.40, 0.90] times the \
squared error of as many evenly drawn images.
    """
    least = methods[(methods["budget"] == methods["budget"].min()) & methods["warning"].isna()]
    part = least[~replay.is_base(least)].dropna(subset=replay.RATIO)
    if part.empty:
        return None
    part = part[(part[DATASET] == part[DATASET].iloc[0]) & (part[TARGET] == part[TARGET].iloc[0])]
    by_name = part.drop_duplicates("method").set_index("method").to_dict("index")
    default = next((name for name in _DEFAULTS if name in by_name), None)
    if default is None:
        return None

    line = by_name[default]
    sentence = f"With {_percents(pd.Series([line[SHARE]]))} of the images of {line[DATASET]}, an adaptive test"
    sentence += (
        f" ({default}) has {interval(line, replay.RATIO)} times the squared error of as many evenly drawn images."
    )
    with_bank = by_name.get(_DEFAULT_OF_BANK)
    if with_bank is not None and _RANDOM_DRAWS in by_name:
        random = interval(by_name[_RANDOM_DRAWS], replay.RATIO)
        sentence += (
            f" With an item bank random images have {random} times; choosing images by the bank multiplies that "
        )
        sentence += f"by {interval(with_bank, replay.SAME_BANK)}."
    part = part.sort_values(replay.RATIO, kind="stable")
    hover = (METHOD, *with_interval(replay.RATIO))
    return sentence, small.dots(part, METHOD, replay.RATIO, hover, line=1.0)


_ERRORS, _METHODS, _CURVES, _EXPOSURE, _EVALUATED, _TRAJECTORIES, _SESSIONS = replay.AdaptiveReplay.tables
_TESTS, _ATTRIBUTES = live.AdaptiveTests.tables
FIGURES = (
    Figure("adaptive_errors", "Error of adaptive tests", (_ERRORS, _METHODS), errors_figure),
    Figure("adaptive_curves", "Error by share of images", (_CURVES,), curves_figure),
    Figure("adaptive_exposure", "Order of the models, and images asked", (_EXPOSURE, _CURVES), exposure_figure),
    Figure("adaptive_asked", "Images evaluated by level", (_EVALUATED,), evaluated_figure),
    Figure("adaptive_trajectories", "Where sessions go", (_TRAJECTORIES,), trajectories_figure),
    Figure("adaptive_sessions", "A few sessions", (_SESSIONS,), sessions_figure),
    Figure("adaptive_tests", "Live adaptive tests", (_TESTS,), live_figure),
    Figure("adaptive_test_attributes", "Live adaptive tests by attribute", (_ATTRIBUTES,), attributes_figure),
    Figure("adaptive_truth", "Live tests and the truth", (_ATTRIBUTES,), truth_figure),
)
HEADLINES = {_METHODS.name: method_headlines, _EVALUATED.name: evaluated_headlines, _TESTS.name: live_headlines}
ANSWERS = (Answer("Do fewer images suffice?", (_METHODS,), error_answer),)
