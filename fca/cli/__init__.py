"""The only importers of Hydra: sub-commands, composition, the sweeper. Here: how words are parsed and refused."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ClassVar, NoReturn

FILTER = "COLUMN=VALUES"
"""The placeholder for filters of runs in the help of a command."""


class Words(argparse.ArgumentParser):
    """An argument parser that raises FcaError for wrong words, and prints its description as it is written.

    at_tab: for completion in a shell, the words of the line so far. Parsing then prints what may come next, one
    word on each line, and ends the process. None: parsing is as usual.
    """

    at_tab: ClassVar[Sequence[str] | None] = None

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self._offers: list[Callable[[str], Iterable[str]]] = []

    def offer(self, values: Callable[[str], Iterable[str]]) -> None:
        """Offer values for an argument without a name when a line is completed.

        values: returns them, given the folder of the store.
        """
        self._offers.append(values)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; if `at_tab` is set, print what may come next and end the process."""
        if self.at_tab is None:
            return super().parse_known_args(args, namespace)
        print(*self._next(self.at_tab), sep="\n")
        raise SystemExit(0)

    def _next(self, words: Sequence[str]) -> list[str]:
        """The words that may replace the last of these words, which may be incomplete.

        If the word before it is an option that takes a value, these are the choices of the option. Otherwise they are
        all options and the values that `offer` added. The shell keeps the words that begin like the typed word.
        """
        previous_word = words[-2] if len(words) > 1 else ""
        # the folder of the store. The last word may be incomplete: [:-2] ensures that the folder is a word before it
        outputs = words[words.index("--outputs") + 1] if "--outputs" in words[:-2] else "outputs"
        for action in self._actions:
            if previous_word in action.option_strings and action.nargs != 0:  # an option that takes a value
                return list(action.choices or ())
        next_words = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        for offer in self._offers:
            next_words += offer(outputs)
        return next_words

    def error(self, message: str) -> NoReturn:
        """Raise FcaError in place of argparse's error, with what was typed, what is allowed, and what to do.

        These are the last three arguments of FcaError; the first is the option, or "words" if no option is at fault.
        message: argparse's text. The regular expressions below match the forms that argparse's messages have.
        """
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

        # the other messages are a reason and perhaps a value, such as "unrecognized arguments: --modl"
        reason, _, value = reason.partition(": ")
        raise FcaError(option, value, f"what {self.prog} --help lists ({reason})", self._step(value))

    def _step(self, value: str) -> str:
        """The advice at the end of the error for a word that argparse does not know.

        It names the most similar option. If there is none, and the command takes filters, the word may be a filter
        that was typed with dashes, and the advice is to leave these out.
        value: the word, such as --modl=resnet18.
        """
        from fca.types import similar_choices

        typed = re.match(r"--([a-z]\w*)(?:[= ](\S+))?", value)  # group 1: the name; group 2: the value, or None
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
    """The words of a command line for argparse: KEY=VALUE, as for `fca run`, becomes the option --KEY=VALUE.

    keys: the keys that are options; words with other keys, such as filters, stay unchanged. Empty: every key is an
    option.

    >>> as_options(["photos", "run=0123456789ab", "--outputs", "store"])
    ['photos', '--run=0123456789ab', '--outputs', 'store']
    >>> as_options(["max_loss=0.01"])
    ['--max-loss=0.01']
    >>> as_options(["query=ncl == 2", "ncl=2"], ["query"])
    ['--query=ncl == 2', 'ncl=2']
    """
    name = "|".join(map(re.escape, keys)) or "[a-z_]+"  # a regular expression
    options = []
    for word in words:
        key, equals, value = word.partition("=")
        is_option = equals and re.fullmatch(name, key)
        options.append(f"--{key.replace('_', '-')}={value}" if is_option else word)
    return options


def printable(text: str, keep: str = "") -> str:
    """The text with control characters replaced by their codes, so that no file name can control the terminal.

    keep: control characters that stay, such as line breaks.

    >>> print(printable("a\x1b[2J.png"))
    a\\x1b[2J.png
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1]  # without its quotes
        for character in text
    )


def sub_command(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """Decorate a sub-command: an error that the user can correct is printed on one line and gives exit code 2.

    Such errors are FcaError, damaged files of the store, images that cannot be read, and files that the operating
    system refuses to open or write. Any other exception is a defect and passes through.
    main: takes the words behind the sub-command's name and returns the exit code.
    """

    @wraps(main)
    def main_with_refusals(arguments: Sequence[str]) -> int:
        """Run the sub-command; its exit code, or 2 after an error that was printed."""
        try:
            return main(arguments)
        except Exception as error:
            command_name = main.__module__.rpartition(".")[2]  # fca.cli.clean -> clean: modules are named like commands
            refusal = _refusal(error, command_name, arguments)
            if refusal is None:
                raise
            return refused(refusal)

    return main_with_refusals


def _refusal(error: Exception, name: str, words: Sequence[str]) -> str | None:
    """The line to print for an error that the user can correct; None for a defect.

    name: the sub-command.
    words: the words typed behind it. Both go into the advice on an error of a file.
    """
    from fca.store.files import DamagedFile
    from fca.types import FcaError, UnreadableImage

    if isinstance(error, FcaError | UnreadableImage):
        return str(error)
    if not isinstance(error, DamagedFile | OSError):
        return None

    from fca.cli.application import as_line  # imports Hydra, for which other errors need not wait

    return as_line(error, name, words)


def refused(error: Exception | str) -> int:
    """Print an error on one line, without passwords and control characters; returns the exit code 2."""
    from fca.types import without_password  # imports pandas, for which a tab or --help need not wait

    line = without_password(" ".join(str(error).split()))
    print("error:", printable(line), file=sys.stderr)
    return 2
