"""The command that reads the runs of a finished sweep, as studies declare it in their file `next.yaml`.

    report=few_class:              the command: fca report report=few_class
      rank: 50                     of several commands that fit, that of the lowest rank
      when:                        one of these lists fits: each query in it is met by some run (see fca.store.query)
        - [task == 'score']
        - [task == 'train', task == 'embed']
      one_table: true              with filters that keep trainings which may stand in one table (optional)

Beside the columns of rows, queries may name `shift_family`: corruption, of corruption/fog/3.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from fca.cli.places import study_folders
from fca.cli.trust import plain_values
from fca.plugins import plugins
from fca.store import Store
from fca.store.columns import BASE, DATASET, SHIFT, TASK
from fca.store.filters import as_typed
from fca.store.query import rows_matching
from fca.tables.rows import filters_that_agree
from fca.types import FcaError

COMMANDS = {"report": "report", "analysis": "analyse"}
log = logging.getLogger(__name__)


class Reader(NamedTuple):
    """A command that reads stored runs, and which runs it reads; the fields are those of `next.yaml`, see above.

    word: report=NAME or analysis=NAME.
    """

    word: str
    rank: int
    when: Sequence[Sequence[str]]
    one_table: bool = False

    @property
    def words(self) -> list[str]:
        """The words of the command line behind `fca`."""
        return [COMMANDS[self.word.partition("=")[0]], self.word]

    def fits(self, done: pd.DataFrame) -> bool:
        """Whether the command reads these runs: in at least one list of `when`, every query is met by some run.

        done: rows of finished runs.
        """
        return any(all(len(rows_matching(done, query)) for query in queries) for queries in self.when)


def next_command(store: Store, done: pd.DataFrame) -> str:
    """The command to type next, which reads these runs.

    A command that puts all trainings into one table refuses trainings of different settings, such as numbers of epochs.
    It gets filters, such as recipe_epochs=5, so that only trainings of equal settings remain. If the store also has
    runs on other data sets, there is a filter for the data sets of these runs.
    done: rows of finished runs, at least one.
    """
    words, has_one_table = _command_for(done)
    trained = done[done[TASK] == "train"]
    if has_one_table and len(trained):
        words += filters_that_agree(trained)  # none if the settings are equal
    if str(store.outputs) != "outputs":  # the default store need not be typed
        words.append(f"outputs={store.outputs}")

    datasets = sorted(done[DATASET].dropna().unique())
    if datasets and len(datasets) < store.rows()[DATASET].nunique():
        words.append(f"dataset={','.join(map(as_typed, datasets))}")
    return shlex.join(["fca", *words])


def _command_for(done: pd.DataFrame) -> tuple[list[str], bool]:
    """The words behind `fca` of the command that reads these runs, and whether it puts all trainings into one table.

    The studies declare commands (readers), each with its rank and with queries that show whether it reads the runs. Of
    the commands that fit, the command with the lowest rank is returned. If none fits, it is `fca results`, which lists
    the runs.
    done: rows of finished runs.
    """
    # a further column for queries: corruption, of corruption/fog/3
    shift_family = done[SHIFT].astype("object").str.partition("/")[0]
    # queries may name any column that all tasks share (BASE); a column that these rows lack gets missing values
    all_columns = [*dict.fromkeys([*done, *BASE])]
    queried_rows = done.reindex(columns=all_columns).assign(shift_family=shift_family)
    for reader in sorted(_readers(), key=lambda reader: reader.rank):
        try:
            if reader.fits(queried_rows):
                return reader.words, reader.one_table
        except FcaError as error:  # an unreadable query, perhaps of a plugin, must not end a sweep that is done
            log.warning("%s is not suggested: %s", reader.word, error)
    return ["results", f"task={','.join(sorted(set(done[TASK])))}"], False


def _readers() -> Iterator[Reader]:
    """Yield the commands that studies declare, both the studies of fca and those of plugins.

    A file that cannot be read is left out with a warning, since it must not end a sweep that is done.
    """
    for folder in study_folders(plugins()).values():
        file = folder / "next.yaml"
        if not file.is_file():
            continue
        try:
            # a list, so that one wrong entry is found before any entry of the file is used
            yield from [_reader(str(word), keys) for word, keys in plain_values(file).items()]
        except FcaError as error:
            log.warning("%s is left out: %s", file, error)


def _reader(word: str, keys: Any) -> Reader:
    """The command that an entry of `next.yaml` declares.

    word: the key of the entry, report=NAME or analysis=NAME.
    keys: its value, a mapping with rank, when, one_table.
    Raises FcaError for a word that is no command, and for missing or unknown keys.
    """
    group, _, name = word.partition("=")
    if group not in COMMANDS or not name:
        raise FcaError("command", word, "report=NAME or analysis=NAME", "correct it")
    # the keys include rank and when, and are all fields of Reader
    if not isinstance(keys, Mapping) or not {"rank", "when"} <= set(keys) <= set(Reader._fields):
        raise FcaError(word, keys, "the keys rank and when, and one_table", "correct it")
    return Reader(word, **keys)
