"""The console script `fca`: one sub-command a door. Nothing heavy is imported until a door is chosen."""

from __future__ import annotations

import importlib
import os
import sys

DOORS = {
    "run": "train, predict, embed or describe: one configuration, or a sweep with -m",
    "analyse": "compute an analysis from stored runs:  fca analyse analysis=few_class",
    "report": "one page of figures, tables and commands:  fca report report=few_class",
    "generate": "test images in levels of difficulty:  fca generate generator=rendered plan=rendered",
    "results": "stored runs as a table:  fca results --format csv --query 'ncl <= 5'",
    "status": "what is done, running and failed, and why",
}


def main() -> None:
    """Hand over to the door that the first word names; exit code 2 for a word that is none."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        sys.exit(0)
    if words[0] not in DOORS:
        print(f"error: {words[0]!r} is no fca command; there are: {', '.join(DOORS)}. Try: fca --help", file=sys.stderr)
        sys.exit(2)
    door = importlib.import_module(f"fca.cli.{words[0]}")
    try:
        code = door.main(words[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _help() -> str:
    doors = "\n".join(f"  fca {name:<8}  {what}" for name, what in DOORS.items())
    return (
        "fca: which image classifier, when the job has few classes?\n\n"
        f"{doors}\n\n"
        "  fca run dataset=digits model=test_resnet subset.ncl=5 subset.seed=0\n"
        "  fca run -m model=test_resnet,test_vit subset.ncl=2,3,5 'subset.seed=range(0,5)' hydra/launcher=joblib\n"
        "  fca run -m experiment=quickstart\n\n"
        "Every value can be overridden on the command line; `fca run --help` lists groups and values."
    )


if __name__ == "__main__":
    main()
