"""The console script `fca`: one module per sub-command, of which none is imported until it is typed."""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from fca.cli import Words, refused
from fca.cli.commands import commands, composes
from fca.cli.places import typed_plugins

GRACE_S = 10.0  # after a signal, until this process ends at once; batch systems kill 30 s after SIGTERM
_received_signals: list[int] = []  # numbers of the signals that are to end this process


def main() -> None:
    """Run the sub-command that the first word of sys.argv names, and exit with its exit code.

    The exit code is 2 for an unknown sub-command, and 128 + n after signal number n.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell has jobs in the background ignore Ctrl-C
            signal.signal(number, _on_signal)
    os.environ["PYTHONSAFEPATH"] = "1"  # Python processes that this one starts import nothing from the current folder
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()  # so that a BrokenPipeError is raised inside of this `try`
    except BrokenPipeError:  # the reader, such as head, needs no further output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's flush at its end fails too
        code = 0
    finally:
        if _received_signals:
            _abandon_work()  # other processes may do the runs that this one has begun
            sys.exit(128 + _received_signals[0])  # in place of any error that the signal caused
    gc.freeze()  # otherwise Python's last garbage collection visits all objects of torch and Lightning, for 1.7 s
    sys.exit(code)


def _on_signal(number: int, _: Any) -> None:
    """Handle a signal: raise SystemExit, so that open files and processes are closed on the way out.

    At a second signal, or if closing takes longer than GRACE_S seconds, the process ends at once.
    KeyboardInterrupt is not raised, because Lightning would turn it into exit code 1.
    """
    _received_signals.append(number)
    if len(_received_signals) > 1:
        _end_at_once()
    timer = threading.Timer(GRACE_S, _end_at_once)
    timer.daemon = True  # does not keep alive a process that has unwound
    timer.start()
    raise SystemExit(128 + number)


def _abandon_work() -> None:
    """Print how to go on, release this process's claims of runs for other processes, and remove unfinished files."""
    line = f"stopped by {signal.Signals(_received_signals[0]).name}; the same command goes on from what is done\n"
    os.write(sys.stderr.fileno(), line.encode())  # not print, which the signal may have interrupted
    if "fca.store.claims" in sys.modules:  # otherwise this process has claimed nothing
        sys.modules["fca.store.claims"].abandon()


def _end_at_once() -> None:
    """End this process without unwinding; W&B and threads are not waited for."""
    try:
        _abandon_work()
    finally:
        os._exit(128 + _received_signals[0])


def _run(words: Sequence[str]) -> int:
    """Do what a command line asks for, and return its exit code.

    words: the words behind `fca`.

    Modules are imported only where they are needed, so that completion in a shell and --help answer quickly.
    """
    if not words or words[0] in ("-h", "--help"):
        print(_help(typed_plugins(words)))
        return 0
    if words[0] in ("-V", "--version"):
        from fca.cli.version import version_line

        print(version_line())
        return 0
    if words[0] in ("-sc", "--shell-completion"):
        return _complete(words)

    plugins = typed_plugins(words)
    by_name = commands(plugins)
    if words[0] not in by_name:
        from fca.types import FcaError

        return refused(FcaError("command", words[0], ", ".join(by_name), "fca --help"))

    command = by_name[words[0]]
    asks_for_help = "-h" in words or "--help" in words
    has_configuration = composes(words[0], plugins)  # `run` has a configuration, `show` has none
    if asks_for_help and has_configuration:  # all other commands have their help from argparse
        return importlib.import_module("fca.cli.help").main(words[0], words[1:])
    return importlib.import_module(command.module).main(words[1:])


# Hydra's own script for zsh is the one for bash, whose splitting of words zsh does not do.
ZSH = r"""
_fca() {
  local -a found
  found=(${(f)"$(COMP_LINE="${(j: :)words[1,CURRENT]}" fca -sc query=fish 2>/dev/null)"})
  compadd -Q -S '' -- $found || _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _fca fca
"""


def _complete(words: Sequence[str]) -> int:
    """Answer a shell that asks for completion: print the possible next words, one on each line; returns the exit code.

    The shell passes the line that the user has typed in the environment variable COMP_LINE. This function completes
    the names of sub-commands, and options of sub-commands without a configuration. Hydra completes keys and groups of
    a configuration.
    words: -sc, then query=SHELL (complete), install=SHELL or uninstall=SHELL (print a script that sets up the shell).
    """
    if words[1:] in (["install=zsh"], ["uninstall=zsh"]):
        # fca has its own script for zsh, since Hydra's does not work there
        print(ZSH.strip() if words[1] == "install=zsh" else "compdef -d fca; unfunction _fca")
        return 0

    # COMP_LINE is absent when a script is installed: Hydra then answers for `fca run`
    # group 1: the name of the sub-command; group 2: all behind it, None if no space follows the name
    line = re.fullmatch(r"\s*\S+\s+(\S*)(\s.*)?", os.environ.get("COMP_LINE", "fca run "))
    name, behind_name = line.groups() if line else ("", None)
    if behind_name is None:  # the cursor is still at the name of the sub-command
        print("\n".join(command for command in commands(typed_plugins(())) if command.startswith(name)))
        return 0

    plugins = typed_plugins(behind_name.split())
    command = commands(plugins).get(name)
    if command is None:  # no such sub-command: nothing to offer
        return 0
    has_configuration = composes(name, plugins)
    if not has_configuration:
        typed_so_far = behind_name.split()
        if behind_name.endswith(" "):
            typed_so_far.append("")  # the next word, of which nothing is typed
        return _complete_options(command.module, typed_so_far)

    from fca.cli.options import nested_options

    group, _, option = behind_name.rpartition(" ")[2].partition("=")
    if option:  # Hydra itself does not offer options in a subfolder of a group, so they are printed here
        print("\n".join(f"{group}={nested}" for nested in nested_options(group) if nested.startswith(option)))
    os.environ["COMP_LINE"] = f"fca{behind_name}"  # without the sub-command, which Hydra would take for an override
    return _run([name, *words])  # the sub-command passes -sc on to Hydra


def _complete_options(module: str, words: Sequence[str]) -> int:
    """Have a sub-command without a configuration print the possible next words; returns the exit code.

    module: the module of the sub-command.
    words: the words typed behind its name. The last one is the word to complete; it may be empty.
    """
    Words.at_tab = words  # the sub-command's parser then prints the next words instead of parsing
    try:
        return importlib.import_module(module).main(words[:-1])
    finally:
        Words.at_tab = None


def _help(plugins: Sequence[str]) -> str:
    """The text of `fca --help`, which also lists the commands that plugins bring.

    plugins: names of modules.
    """
    lines = "\n".join(f"  fca {name:<9}  {command.summary}" for name, command in commands(plugins).items())
    return (
        "fca: which image classifier, when the job has few classes?\n\n"
        f"{lines}\n\n"
        "  fca run dataset=digits model=test_resnet subset.ncl=5 subset.seed=0\n"
        "  fca run -m model=test_resnet,test_vit subset.ncl=2,3,5 'subset.seed=range(0,5)' hydra/launcher=joblib\n"
        "  fca run -m experiment=quickstart\n\n"
        "Every value can be overridden on the command line; `fca run --help` lists groups and values.\n"
        'Tab completion:  eval "$(fca -sc install=bash)", or zsh; fca -sc install=fish | source'
    )


if __name__ == "__main__":
    main()
