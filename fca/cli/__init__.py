"""The only importers of Hydra: sub-commands, composition, the sweeper. Here: how words are parsed and refused."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ClassVar, NoReturn

FILTER = "COLUMN=VALUES"
"""How the help of a command calls its filters of runs."""


class Words(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours, and whose texts stand as they are written.

    at_tab: the words of a line that is to be completed. It then prints what may come next, one a line, and ends.
    """

    at_tab: ClassVar[Sequence[str] | None] = None

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self._offers: list[Callable[[str], Iterable[str]]] = []

    def offer(self, values: Callable[[str], Iterable[str]]) -> None:
        """At a tab, offer these for an argument without a name.    values: given the folder of the store."""
        self._offers.append(values)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; but see `at_tab`."""
        if self.at_tab is None:
            return super().parse_known_args(args, namespace)
        print(*self._next(self.at_tab), sep="\n")
        raise SystemExit(0)

    def _next(self, words: Sequence[str]) -> list[str]:
        """The values of the option before the last word; else all options, and the values of arguments."""
        previous_word = words[-2] if len(words) > 1 else ""
        outputs = words[words.index("--outputs") + 1] if "--outputs" in words[:-2] else "outputs"
        for action in self._actions:
            if previous_word in action.option_strings and action.nargs != 0:
                return list(action.choices or ())
        next_words = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        for offer in self._offers:
            next_words += offer(outputs)
        return next_words

    def error(self, message: str) -> NoReturn:
        """Raise FcaError for words that are wrong."""
        from fca.types import FcaError  # imports pandas, for which a tab or --help need not wait

        missing = re.fullmatch(r"the following arguments are required: (.*)", message)
        if missing:
            words = missing[1].replace(",", "")
            raise FcaError("words", "none", words, f"{self.prog} {words}; {self.prog} --help explains it")

        option, reason = "words", message
        of_argument = re.match(r"argument (\S+): (.*)", message)
        if of_argument:
            option, reason = of_argument.groups()

        number = re.fullmatch(r"invalid (float|int) value: '(.*)'", reason)
        if number:
            kind = "a number, such as 0.05" if number[1] == "float" else "a whole number"
            raise FcaError(option, number[2], kind, "correct it")

        choice = re.fullmatch(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", reason)
        if choice:
            raise FcaError(option, choice[1], choice[2].replace("'", ""), "take one of these")

        reason, _, value = reason.partition(": ")
        raise FcaError(option, value, f"what {self.prog} --help lists ({reason})", self._step(value))

    def _step(self, value: str) -> str:
        """What to type in place of a word that is no option and no argument."""
        from fca.types import similar_choices

        typed = re.match(r"--([a-z]\w*)(?:[= ](\S+))?", value)
        if typed is None:
            return "correct it"
        name, content = typed.groups()
        flags = [flag[2:] for action in self._actions for flag in action.option_strings if flag.startswith("--")]
        similar_flags = similar_choices(flags, name)
        if similar_flags:
            suggestion = f"{similar_flags[0]}={content}" if content else f"--{similar_flags[0]}"
            return f"did you mean {suggestion}?"
        if any(action.metavar == FILTER for action in self._actions):
            return f"filters have no dashes in front: {name}={content or 'VALUE'}"
        return "correct it"


def as_options(words: Sequence[str], keys: Sequence[str] = ()) -> list[str]:
    """KEY=VALUE, as `fca run` takes it, as an option of argparse.    keys: those that are options; empty: all.

    >>> as_options(["photos", "run=0123456789ab", "--outputs", "store"])
    ['photos', '--run=0123456789ab', '--outputs', 'store']
    >>> as_options(["max_loss=0.01"])
    ['--max-loss=0.01']
    >>> as_options(["query=ncl == 2", "ncl=2"], ["query"])
    ['--query=ncl == 2', 'ncl=2']
    """
    name = "|".join(map(re.escape, keys)) or "[a-z_]+"
    options = []
    for word in words:
        key, equals, value = word.partition("=")
        is_option = equals and re.fullmatch(name, key)
        options.append(f"--{key.replace('_', '-')}={value}" if is_option else word)
    return options


def printable(text: str, keep: str = "") -> str:
    """The text with control characters as their codes: no file name and no store may control the terminal.

    keep: control characters that stay, such as those between lines.

    >>> print(printable("a\x1b[2J.png"))
    a\\x1b[2J.png
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1] for character in text
    )


def sub_command(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """A sub-command that ends with exit code 2 and one line for an error that a user can correct.

    These are errors of ours, damaged files of the store, images that cannot be read, and files that the system refuses.
    """

    @wraps(main)
    def main_with_refusals(arguments: Sequence[str]) -> int:
        try:
            return main(arguments)
        except Exception as error:
            refusal = _refusal(error, main.__module__.rpartition(".")[2], arguments)
            if refusal is None:
                raise
            return refused(refusal)

    return main_with_refusals


def _refusal(error: Exception, name: str, words: Sequence[str]) -> str | None:
    """The line for an error that a user can mend; None for a defect."""
    from fca.store.files import DamagedFile
    from fca.types import FcaError, UnreadableImage

    if isinstance(error, FcaError | UnreadableImage):
        return str(error)
    if not isinstance(error, DamagedFile | OSError):
        return None

    from fca.cli.application import as_line  # imports Hydra

    return as_line(error, name, words)


def refused(error: Exception | str) -> int:
    """Print what was wrong, on one line, without passwords; returns the exit code."""
    from fca.types import without_password  # imports pandas, for which a tab or --help need not wait

    line = without_password(" ".join(str(error).split()))
    print("error:", printable(line), file=sys.stderr)
    return 2
