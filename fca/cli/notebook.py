"""What `import fca` offers in a notebook: the data, models, analyses and reports of the command line as objects."""

from __future__ import annotations

import base64
import html
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf, open_dict

from fca.cli.analyse import LINES
from fca.cli.application import CONF, composed
from fca.cli.configure import component
from fca.cli.report import make_page
from fca.cli.show import as_text, shown_columns
from fca.report.figure import Figure, visuals_of
from fca.report.style import NothingToDraw, as_svg, spec
from fca.store import Store
from fca.types import ImageData, Model, Table


def load_data(name: str, **keys: Any) -> ImageData:
    """The images of conf/dataset/<name>.yaml, listed but not read; public sets are fetched on first use.

    keys: values of that file to change, such as `root` of the data set `folder`.
    Raises FcaError for a name, key or value that is not allowed, and for data that are not there.

    >>> load_data("digits").classes[:3]
    ('0', '1', '2')
    """
    data: ImageData = component(_configured("run", "dataset", name, keys), "dataset").load()
    return data


def load_model(name: str, **keys: Any) -> Model:
    """The model of conf/model/<name>.yaml, not yet built; `.build()` gives the network with its preprocessing.

    keys: values of that file to change, e.g. weights="pretrained"; a trained run is load_model("run", run_id=...).
    Raises FcaError for a name, key or value that is not allowed.

    >>> load_model("test_resnet", input_size=32).label()
    'test_resnet'
    """
    model: Model = component(_configured("run", "model", name, keys), "model")
    return model


def analyse(name: str, outputs: str | Path = "outputs", **options: Any) -> Analysed:
    """Run conf/analysis/<name>.yaml on the store in `outputs`; the result shows its tables and figures in a notebook.

    options: values of that file to change, e.g. query="dataset == 'digits'".
    Raises FcaError for an unknown name or option, and where the store has no rows for it.
    """
    analysis = component(_configured("analyse", "analysis", name, options), "analysis")
    store = Store(Path(outputs))
    return Analysed(store, analysis, {table.name: table for table in analysis(store)})


def write_report(name: str, outputs: str | Path = "outputs", query: str | None = None, **keys: Any) -> Path:
    """Write the page of conf/report/<name>.yaml with its figures and tables, as `fca report` does; returns the page.

    query: which runs it reads.    keys: values of that file to change, e.g. title="Our nine classes".
    Raises FcaError for an unknown name or key, and where the store has no rows for any of its analyses.
    """
    config = _configured("report", "report", name, keys, "logger=none")
    config.outputs, config.query = str(outputs), query
    words = ["fca", "report", f"report={name}", f"outputs={outputs}", *([f"query={query}"] if query else [])]
    return make_page(config, shlex.join(words), [CONF])


@dataclass(frozen=True)
class Analysed:
    """The tables of an analysis by name, and its figures. In a notebook it shows both; in a console, the tables.

    result["accuracy"] is a table's DataFrame; `result.figures` are Altair charts by name, with hover.
    """

    store: Store
    analysis: Any
    tables: Mapping[str, Table]

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name].frame

    def save(self) -> list[Path]:
        """Save the tables in the store, as `fca analyse` does; returns their folders, whose names are the ids."""
        return [self.store.save(table) for table in self.tables.values()]

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Name -> Altair chart; a figure for which the tables have too little is left out."""
        return {figure.key: chart for figure, chart in self._drawn()}

    def _drawn(self) -> Iterator[tuple[Figure, Any]]:
        for figure in visuals_of(self.analysis).figures:
            if all(table.name in self.tables for table in figure.tables):
                try:
                    yield figure, figure.draw(*(self.tables[table.name] for table in figure.tables))
                except NothingToDraw:
                    continue

    def __repr__(self) -> str:
        return "\n\n".join(
            f"{as_text(table.frame, f'{table.name}: {table.question}', LINES)}\n{table.source}"
            for table in self.tables.values()
        )

    def _repr_html_(self) -> str:
        parts = []
        for figure, chart in self._drawn():
            picture = base64.b64encode(as_svg(spec(chart)).encode()).decode()  # an <img>: ids of inline SVGs collide
            parts.append(f'<p><b>{html.escape(figure.title)}</b></p><img src="data:image/svg+xml;base64,{picture}">')
        for table in self.tables.values():
            title = f"<b>{html.escape(table.name)}</b>: {html.escape(table.question)}"
            lines = table.frame[shown_columns(table.frame)].to_html(index=False, max_rows=LINES, na_rep="")
            parts.append(f"<p>{title}</p>{lines}<p><small>{html.escape(table.source)}</small></p>")
        return "\n".join(parts)


def _configured(root: str, group: str, name: str, keys: Mapping[str, Any], *overrides: str) -> DictConfig:
    """A root with this option of a group and with some of its keys changed; unknown keys are found by `component`."""
    config = composed(root, [f"{group}={name}", *overrides])
    values = {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    with open_dict(config):
        for key, value in values.items():
            OmegaConf.update(config, f"{group}.{key}", value, merge=True)
    return config
