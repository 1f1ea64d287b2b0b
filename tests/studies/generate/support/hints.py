"""Wrong command lines and what is answered, for tests/cli/test_hints.py."""

MEANT = {  # what was typed -> what is to be typed
    "generate generator=rendred": "generator=rendered",
    "generate size=64": "generator.size=64",
}
OF_NO_GROUP = [
    "generate root=photos",
    "generate lr=0.1",
    "generate run_id=0123456789ab",
]  # groups of `fca run` have these
