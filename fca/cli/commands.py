"""The sub-commands of `fca`: those of the core, and those of studies.

A study's command is a file in its folder `commands`: its name is the command's, the first line of its docstring what
the command does, and its `main` takes the words of the command line and returns the exit code. One with a root in
conf/, conf/NAME.yaml, composes a configuration; the study's module `roots` has the schema of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fca.cli.places import CONF, study_folders

CORE = {
    "run": "train, predict, embed or describe: one configuration, or a sweep with -m",
    "analyse": "compute an analysis from stored runs:  fca analyse analysis=few_class",
    "report": "one page of figures, tables and commands:  fca report report=few_class",
    "export": "a trained network as one file:  fca export run=ID format=onnx",
    "predict": "classes of new images, with probabilities and abstentions:  fca predict FOLDER run=ID",
    "results": "stored runs as a table:  fca results ncl=2,5 --by model,ncl --sort -top1",
    "show": "one run: configuration, numbers, curves, command, files:  fca show ID",
    "diff": "two runs or more: keys, numbers and images on which they differ:  fca diff ID ID",
    "status": "what is done, running and failed, why, and how long it will take",
    "wandb": "the store in W&B:  fca wandb sync    fca wandb report report=few_class",
    "clean": "what takes room and can be made again; removes it with --yes",
    "doctor": "what is installed and found here, what is missing for which feature, and how to get it",
}


class Command(NamedTuple):
    """A sub-command.

    module:  its `main` takes the words behind the command's name, and returns the exit code.
    summary: what the command does, in one line.
    package: that of the study which brings the command; None for one of the core.
    """

    module: str
    summary: str
    package: str | None = None


def commands(plugins: Sequence[str] = ()) -> dict[str, Command]:
    """Name -> sub-command, for the commands of the core, of fca's studies, and of these plugins.

    If several commands have the same name, the command of the core is used, or else the first one, so that no plugin
    replaces a command of fca.
    plugins: names of modules.

    >>> commands()["results"].module
    'fca.cli.results'
    """
    by_name = {name: Command(f"fca.cli.{name}", summary) for name, summary in CORE.items()}
    for package, folder in study_folders(plugins).items():
        for file in sorted(folder.glob("commands/[!_]*.py")):  # not __init__.py
            command_of_study = Command(f"{package}.commands.{file.stem}", _summary(file), package)
            by_name.setdefault(file.stem, command_of_study)
    return by_name


def composes(name: str, plugins: Sequence[str] = ()) -> bool:
    """Whether a command composes a configuration: conf/, or the folder `conf` of a study or plugin, has NAME.yaml."""
    folders = [CONF, *(folder / "conf" for folder in study_folders(plugins).values())]
    return any((folder / f"{name}.yaml").is_file() for folder in folders)


def _summary(file: Path) -> str:
    """What a command does: the first line of its module's docstring, with a small first letter.

    The file is read and not imported, since `fca --help` lists the commands of all studies.
    """
    with file.open(encoding="utf-8", errors="replace") as text:
        line = text.readline().strip().strip('"')
    return line[:1].lower() + line[1:]
