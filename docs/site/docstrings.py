"""Our docstrings as Markdown: equations keep their lines, arguments become a list, examples become code."""

import re
import textwrap
from itertools import chain

import griffe

WIDTH = 100  # a line that ends before this column, though the next word would have fitted, was ended on purpose
ARGUMENT = re.compile(r"[a-z_][\w, ]*:\s+\S")
SEVERAL = re.compile(r" {3,}(?=[a-z_][\w, ]*: )")  # arguments on one line


class AsMarkdown(griffe.Extension):
    """Rewrites the docstring of every object that griffe finds, and shows shapes in place of the names we give them."""

    def on_function(self, *, func: griffe.Function, **_: object) -> None:
        for parameter in func.parameters:
            parameter.annotation = _shape(func, parameter.annotation)
        func.returns = _shape(func, func.returns)

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def _shape(func: griffe.Function, annotation: str | griffe.Expr | None) -> str | griffe.Expr | None:
    """What a name at the top of the function's module stands for: Features -> Float[np.ndarray, "images features"]."""
    alias = func.module.members.get(str(annotation)) if isinstance(annotation, griffe.ExprName) else None
    return alias.value if isinstance(alias, griffe.Attribute) and alias.value is not None else annotation


def as_markdown(docstring: str) -> str:
    """Paragraph by paragraph."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", docstring.strip("\n")))


def _paragraph(text: str) -> str:
    lines = textwrap.dedent(text).splitlines()
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if text.startswith("    "):
        return "\n".join(["```text", *lines, "```"])
    written: list[str] = []
    split = (SEVERAL.split(line) if ARGUMENT.match(line) else [line] for line in lines)
    for line in chain.from_iterable(split):
        if ARGUMENT.match(line):
            written += ([""] if written and not written[-1].startswith("- ") else []) + [f"- {_plain(line)}"]
        elif line.startswith(" ") and written and (written[-1].startswith("- ") or "- " in "".join(written)[:2]):
            written[-1] += f" {_plain(line.strip())}"
        elif written and written[-1].startswith("- "):
            written += ["", _plain(line)]
        elif written and len(written[-1]) + len(line.split(" ", 1)[0]) < WIDTH:
            written[-1] += "  "
            written.append(_plain(line))
        else:
            written.append(_plain(line))
    return "\n".join(written)


def _plain(line: str) -> str:
    """Without what Markdown would take for its own: emphasis, links, HTML; spaces that align become one."""
    name, colon, rest = line.partition(":")
    start = f"`{name}`{colon}" if ARGUMENT.match(line) else name + colon
    parts = (start + re.sub(r"(?<=\S) {2,}", " ", rest)).split("`")
    parts[::2] = [re.sub(r"([*<|\[\]])", r"\\\1", part).replace("\\<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
