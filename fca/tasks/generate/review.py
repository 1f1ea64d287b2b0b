"""review.html: every image under its class and attribute, with a box to strike it; it exports struck.txt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from fca.data.generated import STRUCK, struck_ids
from fca.store.files import write_text
from fca.tasks.generate.folder import Folder, Line, latest
from fca.tasks.generate.plan import LEVELS

REVIEW = "review.html"


def review(lines: list[Line], struck: set[str], name: str) -> str:
    """The page; images are read from beside it, all else is in it."""
    groups: dict[tuple[str, str, str], list[list[Any]]] = {}
    for line in latest(lines).values():
        group = groups.setdefault((line["label"], line["name"], line["attribute"]), [])
        if line["kind"] == "image":
            said = line["facts"].get("revised_prompt") or line["prompt"] or ""
            group.append([line["key"], line["file"], LEVELS.index(line["level"]), said])
        else:
            group.append([line["key"], None, LEVELS.index(line["level"]), f"refused: {line['refused']}"])
    data = {
        "groups": [[*key, sorted(images)] for key, images in sorted(groups.items())],
        "struck": sorted(struck),
        "levels": LEVELS,
        "file": STRUCK,
    }
    return _template().render(name=name, data=data)


def write_review(folder: Folder, lines: list[Line], name: str) -> None:
    """Write review.html, whole."""
    write_text(folder.root / REVIEW, review(lines, struck_ids(folder.root), name))


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True).get_template("review.html.jinja")
