"""`fca report`, and `fca.write_report` in a notebook: the page of some analyses, with its pictures and tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from fca.allowed import plain_name
from fca.cli.analyse import tables_of
from fca.cli.application import CONF, application, check_root, typed_words
from fca.cli.configure import component, configured, keys_of, store_with_images, task_columns
from fca.cli.execute import provenance
from fca.cli.serve import follow, served
from fca.cli.show import check_store
from fca.cli.trust import check_file
from fca.report.compare import write_compared
from fca.report.page import Result, answers_of
from fca.report.pictures import large_pictures
from fca.store import Store
from fca.store import results as results_of
from fca.store.columns import BASE, RUN_ID
from fca.store.damage import shown
from fca.studies.rows import MixedRows
from fca.types import FcaError, check_choice


def report(config: DictConfig) -> str:
    """Print the answers at the top of the page, and where the page is; with serve=true, serve it until stopped.

    Returns the command that makes it again.
    """
    hydra = HydraConfig.get()
    folders = [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]
    words = [word for word in typed_words(hydra) if not word.startswith("serve=")]
    make = partial(_make_page, config, words, folders)
    page, results = make()
    for answer in answers_of(results):
        print(answer.sentence)
    for reason in dict.fromkeys(result.missing for result in results if result.mixed):
        print(f"some answers are missing: {reason}")
    print(f"page: {page}")
    if config.serve:
        with served(page.parent) as address:
            print(f"open: {address} (made again while runs finish; ctrl-c ends)", flush=True)
            follow(lambda: _finished(config), make)
    return shlex.join(["fca", "report", *words])


def _finished(config: DictConfig) -> tuple[str, ...]:
    """The runs that the page may show."""
    return tuple(sorted(results_of(config.outputs, config.query)[RUN_ID]))


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 when no analysis finds rows or a key is wrong. `--serve` is short for serve=true."""
    return application("report", report, ["serve=true" if word == "--serve" else word for word in arguments])


def write_report(name: str, outputs: str | Path = "outputs", query: str | None = None, **keys: Any) -> Path:
    """Write the page of conf/report/<name>.yaml with its figures and tables, as `fca report` does; returns the page.

    query: which runs it reads.    keys: values of that file to change, e.g. title="Our nine classes".
    Raises FcaError for an unknown name, folder or key, and where the store has no rows for any of its analyses.
    """
    config = configured("report", "report", name, keys, "logger=none", outputs=outputs, query=query)
    words = [f"report={name}", f"outputs={outputs}", *([f"query={query}"] if query else [])]
    return _make_page(config, words, [CONF])[0]


def _make_page(config: DictConfig, words: Sequence[str], folders: Sequence[Path]) -> tuple[Path, list[Result]]:
    """Run the analyses and write the page; returns both. Of analyses that find no rows the page gives the reason.

    words: overrides that make the page again.    folders: of configurations; the first that has an analysis counts.
    """
    check_root("report", config)
    check_store(config.outputs, "outputs")
    store = store_with_images(config.outputs)
    maker, tracker = component(config, "report"), component(config, "logger")
    folder = store.outputs / "reports" / plain_name("report.name", OmegaConf.select(config, "report.name"))
    analyses, results = _analyses(maker, config.query, folders), []
    store.rows(config.query)  # a query that cannot be read is refused at once
    for analysis in analyses:
        result, store = _result(analysis, store)
        results.append(result)
    tables = [table for result in results for table in result.tables]
    if not tables:
        reasons = dict.fromkeys(result.missing for result in results)  # mostly one, as the analyses read the same rows
        nothing = "none of its analyses found rows that it can read"
        raise FcaError("report", OmegaConf.select(config, "report.title"), nothing, "; ".join(reasons))
    for table in tables:
        store.save(table)
    command = shlex.join(["fca", "report", *words])
    damaged = shown({other.args: other for other in (*store.left_out, *store.damaged())}.values())
    large = large_pictures(store, tables)
    page: Path = maker(folder, results, store.rows(config.query), command, (*BASE, *task_columns()), damaged, large)
    about = {"report": folder.name, "query": config.query, "command": command, "commit": provenance()["commit"]}
    write_compared(page.parent, store, store.rows(config.query))
    tracker.publish(tables, page, about)
    return page, results


def _result(analysis: Any, store: Store) -> tuple[Result, Store]:
    """What an analysis found, and the store without the runs that it could not read."""
    try:
        with keys_of("report.options", analysis):
            tables, store = tables_of(analysis, store)
        return Result(analysis, tables), store
    except FcaError as error:
        return Result(analysis, (), _typed_here(str(error)), isinstance(error, MixedRows)), store


def _typed_here(reason: str) -> str:
    """The reason why an analysis found nothing, with keys as `fca report` takes them.

    >>> print(_typed_here("keep one, analysis.query=..., or analysis.per_model=[recipe]"))
    keep one, query=..., or '+report.options={per_model: [recipe]}'
    """
    reason = re.sub(r"\banalysis\.query\b", "query", reason)
    return re.sub(r"\banalysis\.(\w+)=(\[[^\]]*\]|[^\s,;]+)", r"'+report.options={\1: \2}'", reason)


def _analyses(maker: Any, query: str | None, folders: Sequence[Path]) -> list[Any]:
    """The analyses of a report, each with those of its options that it has.

    Raises FcaError for an analysis that there is not, and for an option that none of them has.
    """
    files = {file.stem: file for folder in reversed(folders) for file in (folder / "analysis").glob("*.yaml")}
    for name in maker.analyses:
        check_choice("report.analyses", name, sorted(files), "name analyses of conf/analysis/")
    nodes = [OmegaConf.load(files[name]) for name in maker.analyses]
    keys = sorted({str(key) for node in nodes for key in node} - {"_target_", "query", "defaults"})
    for key in maker.options:
        check_choice("report.options", key, keys, "name options of the report's analyses")
    made = []
    for name, node in zip(maker.analyses, nodes, strict=True):
        check_file(str(files[name]), node)
        chosen = {key: value for key, value in {**maker.options, "query": query}.items() if key in node}
        try:
            made.append(component(OmegaConf.create({"analysis": OmegaConf.merge(node, chosen)}), "analysis"))
        except FcaError as error:
            raise FcaError(*(text.replace("analysis.", "report.options.") for text in error.args)) from error
    return made
