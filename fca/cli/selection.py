"""Which runs `fca analyse` and `fca report` read: filters and a query, typed as for `fca results`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf, open_dict

from fca.store.filters import check_columns, combined_query, key_of, unmatched_filter_lines
from fca.store.query import rows_matching
from fca.store.store import Store
from fca.types import FcaError
from fca.validation import rules_by_field

QUERIES = {"analyse": ("query", "analysis.query"), "report": ("query",)}
"""The keys of a query, by sub-command."""

COMPLETION = ("-sc", "--shell-completion")
"""What a shell types for a tab: query=bash is no query then."""

# A whole text in single or double quotes, in which a backslash may escape any character.
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)


def for_hydra(root: str, kind: type, arguments: Sequence[str]) -> list[str]:
    """Rewrite a command line for Hydra: filters such as ncl<=5 become one key `filters`, and queries get quotes.

    root: the sub-command; only the sub-commands in QUERIES have filters.
    kind: the dataclass of its configuration. A word with a key of this class is an override, other comparisons are
    filters.
    arguments: the typed words behind the sub-command.

    >>> from fca.cli.application import AnalyseConfig
    >>> for_hydra("analyse", AnalyseConfig, ["analysis=irt", "dataset=digits", "ncl<=5"])
    ['analysis=irt', "filters=['dataset=digits','ncl<=5']"]
    >>> for_hydra("analyse", AnalyseConfig, ['query=dataset == "digits"'])
    ['query=\\'dataset == "digits"\\'']
    """
    is_completion = any(word in COMPLETION for word in arguments)  # query=bash is then meant for Hydra's completion
    if root not in QUERIES or is_completion:
        return list(arguments)

    keys_of_root = {*rules_by_field(kind), "hydra"}
    words: list[str] = []
    filters: list[str] = []
    for word in arguments:
        key, _, value = word.partition("=")
        column = key_of(word)  # None if the word is no comparison with a column
        is_query = key in QUERIES[root] and value != "null"  # null means no query
        if is_query and not _QUOTED.fullmatch(value):  # in quotes, Hydra takes a query as one text
            words.append(f"{key}={_quoted(value)}")
        elif column is not None and column.partition(".")[0] not in keys_of_root:
            filters.append(word)
        else:
            words.append(word)
    if filters:
        words.append(f"filters=[{','.join(map(_quoted, filters))}]")
    return words


def _quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()


def command(root: str, words: Sequence[str], config: DictConfig) -> str:
    """The command line as the user types it: the inverse of `for_hydra`.

    Filters and queries are taken from the configuration, which has them without Hydra's quotes.
    root: the sub-command.
    words: as `for_hydra` returned them.
    config: the configuration of the sub-command.
    """
    typed: list[str] = []
    for word in words:
        key = word.partition("=")[0]
        query = OmegaConf.select(config, key) if key in QUERIES[root] else None
        if key == "filters":
            typed += list(config.filters)
        elif query is not None:
            typed.append(f"{key}={query}")
        else:
            typed.append(word)
    return shlex.join(["fca", root, *typed])


def query_of(config: DictConfig, store: Store, kind: type) -> str | None:
    """The query and the filters of a configuration as one query on the rows of the store (see `fca.store.query`).

    None if there is neither a query nor a filter, which means all rows. If both the command and its analysis have a
    query, a row has to meet both.
    kind: the dataclass of the configuration.
    Raises FcaError for an unknown column, a query that cannot be read, and a filter that keeps no run.
    """
    queries = [config.query, OmegaConf.select(config, "analysis.query")]
    typed_queries = [query for query in queries if query is not None]
    if "" in typed_queries:
        raise FcaError("query", "", "a text, not empty, or null", "leave it out, or give a condition")
    if not typed_queries and not config.filters:
        return None
    query = None
    if len(typed_queries) == 1:
        query = typed_queries[0]
    elif typed_queries:
        query = " and ".join(f"({typed})" for typed in typed_queries)

    frame = store.rows()
    keys = [key for key in rules_by_field(kind) if key != "filters"]
    check_columns(config.filters, frame, keys)  # a filter with an unknown column may be a misspelt key
    if len(frame):  # in an empty store, no filter is to blame
        # a sentence for each filter that keeps no run: "no run has ncl=9; ncl is ..."
        sentences = unmatched_filter_lines(config.filters, frame)
        if sentences:
            reason, _, values = sentences[0].partition("; ")
            value = reason.removeprefix("no run has ")
            raise FcaError("filter", value, f"one that keeps a run; {values}", "correct it")

    condition = combined_query(query, config.filters, frame)
    if condition is not None:
        rows_matching(frame, condition)  # raises FcaError for a query that cannot be read, before any analysis
    return condition


def narrow(config: DictConfig, store: Store, kind: type) -> None:
    """Set the key `query` of an analysis to the typed query and filters together, so that it reads only these runs.

    Nothing changes if neither was typed.
    config: the configuration of the command; is changed in place.
    kind: the dataclass of the configuration.
    Raises FcaError as `query_of` does, and for an analysis that has no key `query`.
    """
    query = query_of(config, store, kind)
    if query is None:
        return

    analysis: Any = config.analysis
    if "query" not in analysis:
        raise FcaError("query", query, "an analysis that has one", "leave it out: this analysis reads all runs")
    with open_dict(config):
        analysis.query = query
