"""`fca report`: run the analyses of a report and write its page, pictures and tables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from fca.cli.application import CONF, application
from fca.cli.configure import plug
from fca.store import Store
from fca.types import FcaError, Table


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 when the store has nothing for any analysis or the configuration is wrong."""
    return application("report", report, arguments)


def report(config: DictConfig) -> None:
    """Print where the page is; analyses that find no rows are left out with their reason on the page."""
    store = Store(Path(config.outputs))
    command = shlex.join(["fca", "report", *HydraConfig.get().overrides.task])
    maker = plug(config, "report")
    tables: list[Table] = []
    reasons: dict[str, str] = {}
    for name in maker.analyses:
        try:
            tables += _analysis(name, {**maker.options, "query": config.query})(store)
        except FcaError as error:
            reasons[name] = str(error)
    if not tables:
        raise FcaError(
            "report", OmegaConf.select(config, "report.title"), "; ".join(reasons.values()), "run them first"
        )
    for table in tables:
        store.save(table)
    folder = store.outputs / "reports" / OmegaConf.select(config, "report.name")
    page = maker(folder, tables, store.rows(config.query), reasons, command)
    plug(config, "logger").publish(tables, page)
    print(f"page: {page}")


def _analysis(name: str, options: Mapping[str, Any]) -> Any:
    """The analysis of this name with those of the options that it has."""
    path = CONF / "analysis" / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(found.stem for found in path.parent.glob("*.yaml")))
        raise FcaError("report.analyses", name, known, "name analyses of conf/analysis/")
    values = OmegaConf.load(path)
    chosen = {key: value for key, value in options.items() if key in values}
    return plug(OmegaConf.create({"analysis": OmegaConf.merge(values, chosen)}), "analysis")
