"""`fca anchors`; it is one command with `fca bank`, and lives there."""

from fca.cli.bank import anchors as main

__all__ = ["main"]
