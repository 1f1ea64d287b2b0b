"""`fca report`: run the analyses of a report and write its page, pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fca.doors.application import CONF, application
from fca.doors.plugs import plug
from fca.nouns import FcaError, Table
from fca.store import Store


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 when the store has nothing for any analysis or the configuration is wrong."""
    return application("report", report, arguments)


def report(config: DictConfig) -> None:
    """Print where the page is; analyses that find no rows are left out with their reason on the page."""
    store = Store(Path(config.outputs))
    maker = plug(config, "report")
    tables: list[Table] = []
    reasons: dict[str, str] = {}
    for name in maker.analyses:
        try:
            tables += _analysis(name, config.query)(store)
        except FcaError as error:
            reasons[name] = str(error)
    if not tables:
        raise FcaError(
            "report", OmegaConf.select(config, "report.title"), "; ".join(reasons.values()), "run them first"
        )
    for table in tables:
        store.save(table)
    folder = store.outputs / "reports" / OmegaConf.select(config, "report.name")
    page = maker(folder, tables, store.rows(config.query), reasons)
    plug(config, "logger").publish(tables, page)
    print(f"page: {page}")


def _analysis(name: str, query: str | None) -> Any:
    node = OmegaConf.create({"analysis": OmegaConf.load(CONF / "analysis" / f"{name}.yaml")})
    return replace(plug(node, "analysis"), query=query)
