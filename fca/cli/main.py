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

GRACE_S = 10.0  # batch systems kill 30 s after SIGTERM
_received: list[int] = []  # signals that are to end this process


def main() -> None:
    """Run the sub-command that the first word names; exit code 2 for an unknown one, 128 + n after signal n."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of a job in the background
            signal.signal(number, _on_signal)
    os.environ["PYTHONSAFEPATH"] = "1"  # Python processes that this one starts import nothing from the current folder
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, needs no further output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    finally:
        if _received:
            _leave_nothing()
            sys.exit(128 + _received[0])
    gc.freeze()  # else Python looks through all that torch, timm and Lightning have made before it ends: 1.7 s
    sys.exit(code)


def _on_signal(number: int, _: Any) -> None:
    """Unwind, so that all that is open is closed; at a second signal, or when that takes long, end at once.

    SystemExit and not KeyboardInterrupt: of the latter Lightning makes exit code 1.
    """
    _received.append(number)
    if len(_received) > 1:
        _end()
    timer = threading.Timer(GRACE_S, _end)
    timer.daemon = True
    timer.start()
    raise SystemExit(128 + number)


def _leave_nothing() -> None:
    """Give back all claims, remove what is half written, and print how to go on."""
    line = f"stopped by {signal.Signals(_received[0]).name}; the same command goes on from what is done\n"
    os.write(sys.stderr.fileno(), line.encode())  # print may be what the signal interrupted
    if "fca.store.claims" in sys.modules:
        sys.modules["fca.store.claims"].abandon()


def _end() -> None:
    """End this process at once; W&B and threads are not waited for."""
    try:
        _leave_nothing()
    finally:
        os._exit(128 + _received[0])


def _run(words: Sequence[str]) -> int:
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
    if asks_for_help and composes(words[0], plugins):
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
    """What the shell calls at a tab: names of sub-commands and their options here, what is configured by Hydra."""
    if words[1:] in (["install=zsh"], ["uninstall=zsh"]):
        print(ZSH.strip() if words[1] == "install=zsh" else "compdef -d fca; unfunction _fca")
        return 0
    line = re.fullmatch(r"\s*\S+\s+(\S*)(\s.*)?", os.environ.get("COMP_LINE", "fca run "))
    if line is None or line[2] is None:
        print("\n".join(name for name in commands(typed_plugins(())) if name.startswith(line[1] if line else "")))
        return 0
    plugins = typed_plugins(line[2].split())
    command = commands(plugins).get(line[1])
    if command is None:
        return 0
    if not composes(line[1], plugins):
        words = [*line[2].split(), *([""] if line[2].endswith(" ") else [])]
        Words.at_tab = words
        try:
            return importlib.import_module(command.module).main(words[:-1])
        finally:
            Words.at_tab = None
    from fca.cli.options import nested_options

    group, _, option = line[2].rpartition(" ")[2].partition("=")
    if option:  # Hydra completes no option in a folder
        print("\n".join(f"{group}={name}" for name in nested_options(group) if name.startswith(option)))
    os.environ["COMP_LINE"] = f"fca{line[2]}"
    return _run([line[1], *words])


def _help(plugins: Sequence[str]) -> str:
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
