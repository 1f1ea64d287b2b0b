"""`fca report`, and `fca.write_report` in a notebook: the page of some analyses, with its pictures and tables."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from fca.cli import printable
from fca.cli.analyse import tables_of
from fca.cli.analysis_keys import with_defaults
from fca.cli.application import ReportConfig, application, check_root, typed_words
from fca.cli.configure import component, configured, keys_of, store_with_images
from fca.cli.execute import provenance
from fca.cli.notices import gathered
from fca.cli.options import option_files
from fca.cli.selection import command, query_of
from fca.cli.serve import follow, served
from fca.cli.show import check_store
from fca.cli.trust import check_file, load_yaml
from fca.plugins import plugins
from fca.report.compare import write_comparison_scripts
from fca.report.page import RUNS, Result, headlines_of_results
from fca.report.pictures import large_pictures
from fca.store import Store
from fca.store import results as results_of
from fca.store.columns import DATASET, RUN_ID
from fca.store.damage import shortened_list
from fca.store.files import if_whole, read_object, write_json
from fca.store.filters import Filters, words_of
from fca.tables.rows import DATA_LEFT_OUT, MixedRows
from fca.types import Analysis, FcaError, Table, check_choice
from fca.validation import plain_name

MADE_OF = "made_of.json"  # beside a page: a hash of what it was made of, and the sizes of its files


def report(config: DictConfig) -> str:
    """Make the page of a report, and print its headlines and its path.

    With serve=true the page is then served on this machine. It is made again whenever runs finish, until Ctrl-C.
    Returns the command that makes the page again; the page shows it, too.
    """
    # serve= is left out of the command, since it does not change the page
    words = [word for word in typed_words(HydraConfig.get()) if not word.startswith("serve=")]
    page_command = command("report", words, config)
    made_page = _make_page(config, page_command)
    _print_answers(made_page)
    print(f"page: {made_page.page}")

    if config.serve:
        with served(made_page.page.parent) as address:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is the usual end here, not a failure
            print(f"open: {address} (made again while runs finish; ctrl-c ends)", flush=True)
            make_again = partial(_make_page, config, page_command)
            with suppress(KeyboardInterrupt):
                follow(lambda: _finished_runs(config), make_again)  # whenever the finished runs change
    return page_command


def _print_answers(made_page: MadePage) -> None:
    """Print the headlines of a page, why some are missing, and which tables or data sets the previous page also had."""
    for answer in headlines_of_results(made_page.results):
        print(printable(answer.sentence))
    # mixed: an analysis has no tables because its runs do not belong together, so the user has to select some of them;
    # each reason (`missing`) once, since several analyses may have the same
    for reason in dict.fromkeys(result.missing for result in made_page.results if result.mixed):
        print(f"some answers are missing: {printable(reason)}")
    if made_page.lost:
        print(printable(f"the page before also had {_lost_in_words(made_page.lost)}; {_why_lost(made_page)}"))


def _finished_runs(config: DictConfig) -> tuple[str, ...]:
    """The ids of the finished runs that the page may show; when they change, the page is out of date."""
    query = query_of(config, Store(Path(config.outputs)), ReportConfig)
    return tuple(sorted(results_of(config.outputs, query)[RUN_ID]))


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 when no analysis finds rows or a key is wrong. `--serve` is short for serve=true."""
    return application("report", report, ["serve=true" if word == "--serve" else word for word in arguments])


def write_report(
    name: str,
    outputs: str | Path = "outputs",
    query: str | None = None,
    *,
    filters: Filters | None = None,
    **keys: Any,
) -> Path:
    """Write the page of conf/report/<name>.yaml with its figures and tables, as `fca report` does; returns its path.

    If the page exists already and was made of the same runs, keys and code, it is not made again.

    outputs: the folder of the store.
    query:   a condition on the columns of runs; the page reads only runs that meet it. None: all runs.
    filters: further conditions, column -> allowed values, as `fca.results` takes them; None: none.
    keys:    values that replace values of the file, e.g. title="Our nine classes".
    Raises FcaError for an unknown name, folder, column or key, and if the store has no rows for any of its analyses.
    """
    filter_words = words_of(filters)
    config = configured(
        "report", "report", name, keys, "logger=none", outputs=outputs, query=query, filters=filter_words
    )
    # The page shows a command that makes it from the same runs. The command has no `keys`, so it uses the file as it is
    words = [f"report={name}", f"outputs={outputs}"]
    if query:
        words.append(f"query={query}")
    page_command = shlex.join(["fca", "report", *words, *filter_words])

    store = Store(Path(outputs))
    folder = _page_folder(config, store)
    if _is_made_of(folder, _hash_of_ingredients(config, page_command, store)):
        return folder / "index.html"
    return _make_page(config, page_command).page


class MadePage(NamedTuple):
    """A page that was written.

    left_out: a sentence for each data set that is not on it although the store has runs of it.
    lost:     what the page of before had and this one has not: (table, None) for a table, and (table, data set) for a
              table that is still there but lacks this data set.
    """

    page: Path
    results: list[Result]
    left_out: list[str]
    lost: list[tuple[str, str | None]]


def _make_page(config: DictConfig, page_command: str) -> MadePage:
    """Run the analyses and write the page; warnings are shown together at the end.

    page_command: the command that makes the page again, which the page shows.
    """
    check_root("report", config)
    check_store(config.outputs, "outputs")
    with gathered():
        return _analyse_and_write(config, page_command)


def _analyse_and_write(config: DictConfig, page_command: str) -> MadePage:
    """Run the analyses of a report, save their tables, write the page, and publish it in the tracker (such as W&B).

    If an analysis finds no rows (results of runs), the page gives the reason. Raises FcaError if no analysis finds any.
    page_command: the command that makes the page again; the page shows it.
    """
    store = store_with_images(config.outputs)
    maker = component(config, "report")  # writes the page
    tracker = component(config, "logger")
    folder = _page_folder(config, store)
    query = query_of(config, store, ReportConfig)

    # Run the analyses. The next analysis gets the store without the runs that this one could not read
    results: list[Result] = []
    for analysis in _analyses(maker, query):
        result, store = _result_or_reason(analysis, store)
        results.append(result)
    tables = [table for result in results for table in result.tables]
    if not tables:
        raise _nothing_found(config, results)
    for table in tables:
        store.save(table)

    # Write the page, with notes on damaged files and on data sets that are left out
    damages = {damage.args: damage for damage in (*store.left_out, *store.damaged())}  # by file and problem: each once
    notes_on_datasets = _notes_on_datasets_left_out(tables)
    notes = [*shortened_list(damages.values()), *notes_on_datasets]
    pictures = large_pictures(store, tables)  # thumbnail in the tables -> file of the same picture at full size
    tables_before = _tables_on_page(folder)  # before the new page replaces the old one
    page: Path = maker(folder, results, store.rows(), page_command, store.columns(), notes, pictures)
    lost = _lost(tables_before, _tables_on_page(folder))  # tables and data sets that only the previous page had
    write_comparison_scripts(page.parent, store, store.rows(query))  # data with which the page compares runs
    record = {  # by which `write_report` recognises a page that is up to date
        "made_of": _hash_of_ingredients(config, page_command, store),
        "files": _sizes_of_files(folder),
    }
    write_json(folder / MADE_OF, record)

    description = {
        "report": folder.name,
        "query": query,
        "command": page_command,
        "commit": provenance()["commit"],
    }
    tracker.publish(tables, page, description)
    return MadePage(page, results, notes_on_datasets, lost)


def _notes_on_datasets_left_out(tables: Sequence[Table]) -> list[str]:
    """A sentence, from the analysis, for each data set that some of these tables leave out; each sentence once."""
    notes = [note for table in tables for note in table.parameters.get(DATA_LEFT_OUT, ())]
    return list(dict.fromkeys(notes))


def _nothing_found(config: DictConfig, results: Sequence[Result]) -> FcaError:
    """The error for a report none of whose analyses found rows, with their reasons."""
    reasons = dict.fromkeys(result.missing for result in results)  # mostly one, as the analyses read the same rows
    nothing = "none of its analyses found rows that it can read"
    return FcaError("report", OmegaConf.select(config, "report.title"), nothing, "; ".join(reasons))


def _lost(
    tables_before: set[tuple[str, str | None]], tables_now: set[tuple[str, str | None]]
) -> list[tuple[str, str | None]]:
    """What a page had before and has no longer, as `MadePage.lost`; sorted.

    tables_before, tables_now: see `_tables_on_page`. A table that is gone is listed once, not for each data set in it.
    """
    lost = tables_before - tables_now
    lost_tables = {name for name, dataset in lost if dataset is None}
    entries = [(name, dataset) for name, dataset in lost if dataset is None or name not in lost_tables]
    return sorted(entries, key=lambda entry: (entry[0], entry[1] or ""))  # None cannot be compared with text


def _page_folder(config: DictConfig, store: Store) -> Path:
    """The folder of the page, named by report.name. Raises FcaError for a name that leads elsewhere."""
    return store.outputs / "reports" / plain_name("report.name", OmegaConf.select(config, "report.name"))


def _hash_of_ingredients(config: DictConfig, page_command: str, store: Store) -> str:
    """A hash of all that a page depends on: its configuration, the finished runs, and the code.

    page_command: the command that makes the page, which the page shows.
    """
    code = provenance()
    if (code["commit"] or "").endswith("-dirty"):  # a checkout with changes may be another one each time
        code = {"commit": uuid.uuid4().hex}
    runs = store.rows()[[RUN_ID, "finished"]].sort_values(RUN_ID).to_numpy().tolist()
    ingredients = [code, plugins(), OmegaConf.to_container(config), page_command, runs]
    content = json.dumps(ingredients, sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _is_made_of(folder: Path, made_of: str) -> bool:
    """Whether the page in the folder has this hash of its ingredients, and all of its files with their sizes."""
    with if_whole():
        record = read_object(folder / MADE_OF, made_of=str, files=dict)
        return record["made_of"] == made_of and record["files"] == _sizes_of_files(folder)
    return False


def _sizes_of_files(folder: Path) -> dict[str, int]:
    """Path of each file of a page inside its folder -> its size in bytes; without the record MADE_OF itself."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MADE_OF)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _tables_on_page(folder: Path) -> set[tuple[str, str | None]]:
    """What the CSV files of a page contain: (table, None) for each table, and (table, data set) for its data sets.

    The set is empty if the folder has no page. It shows later which tables or data sets a new page has lost.
    """
    entries: set[tuple[str, str | None]] = set()
    for path in folder.glob("tables/*.csv"):
        if path.stem == RUNS:  # the list of runs is no table of an analysis
            continue
        entries.add((path.stem, None))
        with suppress(ValueError, OSError):  # a table without data sets, or a file that fca did not write
            datasets = pd.read_csv(path, usecols=[str(DATASET)], dtype="str", keep_default_na=False)[DATASET]
            entries |= {(path.stem, dataset) for dataset in datasets.unique() if dataset}
    return entries


def _lost_in_words(lost: Sequence[tuple[str, str | None]]) -> str:
    """In words, what the previous page had and the new page lacks: whole tables, then data sets within other tables.

    lost: (table, None) for a lost table, (table, data set) for a data set that a table has lost.

    >>> _lost_in_words([("gap", None), ("accuracy", "flowers"), ("dcn", "flowers")])
    'the table gap; flowers in accuracy, dcn'
    """
    whole_tables = [name for name, dataset in lost if dataset is None]
    tables_by_dataset: dict[str, list[str]] = {}
    for name, dataset in lost:
        if dataset is not None:
            tables_by_dataset.setdefault(dataset, []).append(name)

    phrases = []
    if whole_tables:
        plural = "s" if len(whole_tables) > 1 else ""
        phrases.append(f"the table{plural} {', '.join(whole_tables)}")
    for dataset, names in tables_by_dataset.items():
        phrases.append(f"{dataset} in {', '.join(names)}")
    return "; ".join(phrases)


def _why_lost(made_page: MadePage) -> str:
    """Why a page has less than the one before: the reasons that are known, or a guess."""
    missing = [result.missing for result in made_page.results if result.missing]
    reasons = dict.fromkeys([*made_page.left_out, *missing])
    return f"now: {'; '.join(reasons)}" if reasons else "their runs are no longer read: other filters, or another store"


def _result_or_reason(analysis: Analysis, store: Store) -> tuple[Result, Store]:
    """The tables of an analysis, or the reason why it has none; and the store without the runs that it could not read.

    An FcaError of the analysis is caught, because a page is written as long as one analysis succeeds. The error
    MixedRows means that its runs do not belong together, so that the user has to select some; the result notes this.
    """
    try:
        with keys_of("report.options", analysis):
            tables, store = tables_of(analysis, store)
        return Result(analysis, tables), store
    except FcaError as error:
        reason = _with_report_keys(str(error))
        return Result(analysis, (), reason, mixed=isinstance(error, MixedRows)), store


def _with_report_keys(reason: str) -> str:
    """An error of `fca analyse` in which analysis.KEY=VALUE is replaced by what `fca report` takes instead.

    >>> print(_with_report_keys("keep one, recipe_lr=0.1, or analysis.per_model=[recipe]"))
    keep one, recipe_lr=0.1, or '+report.options={per_model: [recipe]}'
    """
    # group 1: the key; group 2: a list in brackets, or a value up to a space, comma or semicolon
    return re.sub(r"\banalysis\.(\w+)=(\[[^\]]*\]|[^\s,;]+)", r"'+report.options={\1: \2}'", reason)


def _analyses(maker: Any, query: str | None) -> list[Any]:
    """The analyses of a report, built from their files in conf/analysis/.

    maker: the component of the report. It lists the names of the analyses (`analyses`), and values for keys of them
           (`options`).
    query: which runs the analyses read; None: all.
    An analysis gets the query, and each of these values whose key it has.
    Raises FcaError for an unknown analysis, and for an option that no analysis of the report has.
    """
    files = option_files("analysis")
    for name in maker.analyses:
        check_choice("report.analyses", name, sorted(files), "name analyses of conf/analysis/")
    with _naming_report_options():  # errors name report.options.KEY, which the user typed, in place of analysis.KEY
        nodes = [_analysis_node(files[name]) for name in maker.analyses]
    keys_of_analyses = {str(key) for node in nodes for key in node} - {"_target_", "query", "defaults"}
    for key in maker.options:
        check_choice("report.options", key, sorted(keys_of_analyses), "name options of the report's analyses")

    analyses = []
    all_options = {**maker.options, "query": query}
    for node in nodes:
        options = {key: value for key, value in all_options.items() if key in node}
        config = OmegaConf.create({"analysis": OmegaConf.merge(node, options)})  # as `fca analyse` would compose it
        with _naming_report_options():
            analyses.append(component(config, "analysis"))
    return analyses


def _analysis_node(file: Path) -> DictConfig:
    """The configuration of an analysis: the keys of its file, and for all other keys the defaults of its class.

    Raises FcaError for a file that is no configuration, or that sets what a file may not set (see `check_file`).
    """
    written = load_yaml(file)
    check_file(str(file), written)
    values: Any = OmegaConf.to_container(written, resolve=False)
    return OmegaConf.create(with_defaults(values))


@contextmanager
def _naming_report_options() -> Iterator[None]:
    """Make FcaErrors of the body that name analysis.KEY name report.options.KEY, as it is typed for `fca report`."""
    try:
        yield
    except FcaError as error:
        raise FcaError(*(text.replace("analysis.", "report.options.") for text in error.args)) from error
