"""The gain from fine-tuning, as a figure and as a sentence."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.store.columns import TRAIN_S
from fca.studies.recommend.choice import CANDIDATE
from fca.studies.recommend.finetuning import PROBE_TOP1, TUNED_TOP1, TUNING_GAIN
from fca.tables.table import DATASET, N_TEST
from fca.types import Table, interval_columns


def finetuning_figure(gains: Table) -> alt.FacetChart:
    """The figure of how much more accurate each fine-tuned network is than the linear probe on the same network.

    gains: table `recommendation_finetuning`, with a line for each fine-tuned network.
    """
    frame = gains.frame.assign(panel=style.panels(gains.frame, DATASET))
    base: Any = alt.Chart().encode(y=kinds.category(alt.Y, str(CANDIDATE), None))
    across = kinds.quantity(alt.X, TUNING_GAIN, "gain over the linear probe", grid=True)
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(x=across, tooltip=kinds.tooltips(gains.columns))
    title = style.title(
        "What did fine-tuning bring?",
        "Each mark is a fine-tuned network against the linear probe on the same network, on the same test images, with "
        "the 95 % interval. To the right of the dashed line, fine-tuning is better.",
    )
    # on_y=False: the gain is on the horizontal axis, so the dashed line at 0 is vertical
    layers = kinds.layers(kinds.reference(0.0, on_y=False), kinds.interval_marks(base, TUNING_GAIN, on_y=False), dots)
    return style.faceted(layers, frame, title, filters=(DATASET,), row=24)


def finetuning_statements(gains: pd.DataFrame) -> list[Statement]:
    """The statement on the fine-tuned network that gained most accuracy over the linear probe on the same network.

    If the interval of the gain contains 0, the sentence adds that the gain may be nothing.
    gains: table `recommendation_finetuning` of one data set, the largest gain first.

    >>> line = {"candidate": "net 128 px (fine-tuned)", "top1_finetuned": 0.95, "top1_probe": 0.86, "gain": 0.09}
    >>> line |= {"gain_low": 0.03, "gain_high": 0.16, "n_test": 120, "train_s": 140.0}
    >>> print(finetuning_statements(pd.DataFrame([line]))[0].sentence)
    Fine-tuning net 128 px brought +9.0 points [+3.0, +16.0] on 120 test images: 95.0 %, its linear probe 86.0 %.
    >>> [statement] = finetuning_statements(pd.DataFrame([line | {"gain_low": -0.01}]))
    >>> print(statement.sentence.split(" px ")[1].split(":")[0])
    brought +9.0 points [-1.0, +16.0] on 120 test images, which may be nothing
    """
    largest = gains.iloc[0].to_dict()
    name = str(largest[CANDIDATE]).removesuffix(" (fine-tuned)")
    # the interval leaves out 0: a gain, or a loss of accuracy
    is_significant = not largest[TUNING_GAIN.low] <= 0 <= largest[TUNING_GAIN.high]
    doubt = "" if is_significant else ", which may be nothing"
    gain = f"{small.format_with_interval(largest, TUNING_GAIN)} on {largest[N_TEST]:.0f} test images{doubt}"
    accuracies = f"{100 * largest[TUNED_TOP1]:.1f} %, its linear probe {100 * largest[PROBE_TOP1]:.1f} %"

    hover = (CANDIDATE, *interval_columns(TUNING_GAIN), TRAIN_S)
    chart = small.dots(gains, CANDIDATE, TUNING_GAIN, hover, line=0.0)
    return [Statement(f"Fine-tuning {name} brought {gain}: {accuracies}.", chart)]
