"""The pages that are made of the code when the site is built: studies, settings, analyses, statistics, decisions.

MkDocs calls the functions whose names begin with `on_`. README, CONTRIBUTING, CHANGELOG and the READMEs of studies and
experiments are pages as they are; links between files of the project become links between pages.
"""

import io
import logging
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fca.cli.application import composed
from fca.cli.commands import commands, composes
from fca.cli.help import Key, groups, meanings, question_of, sections
from fca.cli.hints import values_of
from fca.cli.options import option_files, rows
from fca.cli.places import CONF, study_folders
from fca.cli.terminal import typed_value
from fca.plugins import class_of
from fca.types import Column
from fca.validation import describe_allowed, rules_by_field

log = logging.getLogger("mkdocs.hooks.pages")  # a strict build counts its warnings
HOME = Path(__file__).resolve().parents[2]
STUDIES = {package.rpartition(".")[2]: folder for package, folder in study_folders().items()}
AS_THEY_ARE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
AS_THEY_ARE |= {f"fca/studies/{study}/README.md": f"studies/{study}.md" for study in STUDIES}
AS_THEY_ARE |= {
    file.relative_to(HOME).as_posix(): f"experiments/{file.parent.name if file.stem == 'README' else file.stem}.md"
    for file in sorted(HOME.glob("experiments/*/*.md"))
}
REMARK = re.compile(r"(?<=\S) {3,}(?=\S)")  # what it costs, behind a command
LIST, TEXT = re.compile(r"- |1\. "), re.compile(r"(?!- |\d+\. |[|#>])\S")  # begins one; text in front of it
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([\w./-]+(?:\.\w+|/))(#[\w-]+)?\)")
IMAGE = re.compile(r'(<img src=")([\w./-]+)')
NO_OPTION = ("hydra", "local", "experiment")  # folders of conf that have no page of keys
EXPERIMENTS = {"levels": "progressive: levels of ten attributes", "similarity": "few_class_arena: similarity"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the entries of the navigation that begin with @."""
    rooms = {
        "@settings": ["settings/index.md", *({group: f"settings/{group}.md"} for group in _groups())],
        "@studies": [{_name_of(study): f"studies/{study}.md"} for study in STUDIES],
        "@analyses": [{_name_of(study): f"analyses/{study}.md"} for study in STUDIES if _files_of(study)],
        "@statistics": [
            "statistics/index.md",
            *(_page_of(module) for module in _modules()),
            *({_name_of(study): [_page_of(module) for module in _modules(study)]} for study in _with_statistics()),
        ],
        "@experiments": [
            {EXPERIMENTS.get(Path(page).stem, Path(page).stem): page}
            for page in sorted(AS_THEY_ARE.values())
            if page.startswith("experiments/")
        ],
    }

    def fill(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: fill(inner) for title, inner in entry.items()}
        return [fill(inner) for inner in entry] if isinstance(entry, list) else rooms.get(entry, entry)

    config.nav = fill(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for place, content in made().items():
        files.append(File.generated(config, place, content=content))
    return files


def made() -> dict[str, str]:
    """Place in the site -> Markdown."""
    pages = {place: (HOME / file).read_text(encoding="utf-8") for file, place in AS_THEY_ARE.items()}
    pages |= {f"settings/{group}.md": "\n".join(_options(group)) for group in _groups()}
    pages |= {f"analyses/{study}.md": "\n".join(_analyses(study)) for study in STUDIES if _files_of(study)}
    modules = [*_modules(), *(module for study in STUDIES for module in _modules(study))]
    pages |= {_place_of(module): "\n".join(_module(module)) for module in modules}
    pages["options.md"] = "\n".join(_commands())
    pages["settings/index.md"] = "\n".join(_roots())
    pages["settings/experiment.md"] = "\n".join(_experiments())
    pages["statistics/index.md"] = "\n".join(_statistics())
    pages["decisions.md"] = "\n".join(_decisions())
    return pages


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Links to files of the project become links to pages, or to pictures; to files that are neither, their names."""
    sources = {place: file for file, place in AS_THEY_ARE.items()}
    here = page.file.src_uri

    def place_of(target: str) -> tuple[str, str]:
        """Where a target lies in the project, and in the site, seen from this page; empty if it is not there."""
        at = posixpath.normpath(posixpath.join(posixpath.dirname(sources.get(here, f"docs/{here}")), target))
        known = AS_THEY_ARE | {"docs/adr": "decisions.md"}
        place = known.get(at, at.removeprefix("docs/") if at.startswith("docs/") else "")
        found = files.get_file_from_path(place) is not None
        return at, os.path.relpath(place, posixpath.dirname(here) or ".") if found else ""

    def linked(found: re.Match[str]) -> str:
        at, there = place_of(found[3])
        if there or at.startswith("docs/"):  # what is missing there is for MkDocs to report
            return f"{found[1]}[{found[2]}]({there or found[3]}{found[4] or ''})"
        return f"{found[2]} (`{at}`)"

    def shown(found: re.Match[str]) -> str:
        at, there = place_of(found[2])
        if not there:
            log.warning("%s shows %s, which is not there", here, at)
        return found[1] + there

    if here.startswith(("adr/", "changelog")):
        page.meta["search"] = {"boost": 0.3}  # what one looks for is rarely how it came about
    markdown = _with_lists(markdown)
    if here in sources or "](../" in markdown:
        markdown = LINK.sub(linked, markdown)
        markdown = IMAGE.sub(shown, markdown)
    return markdown


def _with_lists(markdown: str) -> str:
    """An empty line before each list, which MkDocs needs where GitHub does not."""
    lines: list[str] = []
    code = False
    for line in markdown.splitlines():
        code ^= line.startswith("```")
        if not code and LIST.match(line) and lines and TEXT.match(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


# Settings


def _groups() -> list[str]:
    return sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name not in NO_OPTION)


def _commands() -> Iterator[str]:
    """What each command prints with --help; those of a configuration are settings."""
    yield "# Commands and their options\n\n| command | |\n|---|---|"
    for name, command in commands().items():
        link = f"settings/index.md#keys-of-fca-{name}" if composes(name) else f"#fca-{name}"
        yield f"| [`fca {name}`]({link}) | {_cell(command.summary)} |"
    os.environ["COLUMNS"] = "90"  # the width of what argparse prints
    for name, command in commands().items():
        if composes(name):
            continue
        with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
            import_module(command.module).main(["--help"])
        yield f"\n## fca {name}\n\n```text\n{printed.getvalue()}```"


def _roots() -> Iterator[str]:
    yield "# Settings\n\nEvery value can be set on the command line, `KEY=VALUE`; `-m` with several values sweeps."
    yield "A group has options, each a file in `conf/`."
    yield "These pages are made of those files and of the classes that read them;"
    yield "`fca run all --help` prints the same for the options that you choose.\n"
    for root in filter(composes, commands()):
        config = composed(root, [], with_hydra=True)
        yield f"\n## Keys of fca {root}\n"
        of_root = ", ".join(
            f"[`{name}`]({name.partition('@')[0].partition('/')[0]}.md)"
            for name in groups(root, config)
            if not name.startswith("hydra")
        )
        yield f"Groups: {of_root}.\n" if of_root else ""
        yield from _keys(next(iter(sections(root, config))).keys)


def _options(group: str) -> Iterator[str]:
    """The options of a group, and the keys of each class among them."""
    files = list(option_files(group).values())
    by_class: dict[str, list[Path]] = {}
    for file in files:
        by_class.setdefault(values_of(file).get("_target_", ""), []).append(file)
    yield f"# {group}\n"
    for target, some in by_class.items():
        yield f"## {_title(target, some)}\n"
        yield from (_option(group, file) for file in some)
        yield ""
        yield from _keys(_keys_of(group, target, some))


def _title(target: str, files: list[Path]) -> str:
    return target.rpartition(".")[2] or "files without a class" if len(files) > 1 else files[0].stem


def _option(group: str, file: Path) -> str:
    name = file.relative_to(CONF / group).with_suffix("").as_posix()
    return f"- `{group}={name}`: {_text(question_of(file))}"


def _keys_of(group: str, target: str, files: list[Path]) -> Iterator[Key]:
    """Name, default where all of these files agree, meaning and allowed values."""
    values = [values_of(file) for file in files]
    kind: Any = class_of("_target_", target) if target else None
    known = {key: text for file in files for key, text in meanings(file, target, kind).items()}
    texts = (file.read_text(encoding="utf-8") for file in files if file not in rows())
    before = "" if "@package _global_" in next(texts, "") else f"{group}."
    for key in dict.fromkeys(key for one in values for key in one if key != "_target_"):
        given = {typed_value(one[key]) for one in values if key in one}
        default = given.pop() if len(given) == 1 else "by option"
        allowed = describe_allowed(kind, key) if kind and key in rules_by_field(kind) else ""
        yield Key(f"{before}{key}", default, known.get(key, ""), allowed)


def _keys(keys: Iterable[Key]) -> Iterator[str]:
    keys = list(keys)
    if not keys:
        yield "No keys.\n"
        return
    yield "| key | default | meaning | allowed |\n|---|---|---|---|"
    for key in keys:
        default = {"by option": "by option", "???": "required"}.get(key.default, f"`{key.default}`")
        yield f"| `{key.name}` | {_cell(default)} | {_cell(key.meaning)} | {_cell(key.allowed)} |"
    yield ""


def _head(file: Path) -> Iterator[str]:
    """The comment at the top of a file; its commands as code."""
    code = False
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.removeprefix("#")
        if text.strip().startswith("@package"):
            continue
        if (is_code := text.startswith("   ")) != code:
            yield "\n```text" if is_code else "```\n"
            code = is_code
        command, *remark = REMARK.split(text.strip(), 1) if code else [_text(text.strip())]
        yield from (f"# {what}" for what in remark)
        yield command
    if code:
        yield "```"
    yield ""


def _experiments() -> Iterator[str]:
    yield "# Experiments\n\n`fca run -m experiment=NAME`: a study in one file, which only has what differs"
    yield "from the defaults. `debug=smoke` shrinks any of them to seconds;"
    yield "`sweep.print=true` prints its commands and starts nothing.\n"
    for file in sorted((CONF / "experiment").glob("*.yaml")):
        yield f"## {file.stem}\n"
        yield from _head(file)
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        axes = content.get("hydra", {}).get("sweeper", {}).get("params", {})
        if axes:
            yield "| axis | values |\n|---|---|"
            yield from (f"| `{key}` | {_cell(str(values).replace(',', ', '))} |" for key, values in axes.items())
            yield ""


# Studies and their analyses


def _name_of(study: str) -> str:
    """What the page of a study calls it."""
    return (STUDIES[study] / "README.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _files_of(study: str) -> dict[Path, str]:
    """The options of the group analysis that are of this study, and the class of each."""
    targets = {file: values_of(file)["_target_"] for file in sorted((CONF / "analysis").glob("*.yaml"))}
    return {file: target for file, target in targets.items() if target.startswith(f"fca.studies.{study}.")}


def _analyses(study: str) -> Iterator[str]:
    yield f"# {_name_of(study)}: analyses\n\nWhat they are for: [{_name_of(study)}](../studies/{study}.md).\n"
    for file, target in _files_of(study).items():
        yield f"## {file.stem}\n"
        yield from _head(file)
        yield from _keys(_keys_of("analysis", target, [file]))
        for table in class_of("analysis", target).tables:  # type: ignore[attr-defined]
            yield f"### Table {table.name}\n\n{_text(table.question)}\n\nSource: {_text(table.source)}\n"
            yield "| column | meaning |\n|---|---|"
            yield from (f"| `{column}` | {_cell(_meaning(column))} |" for column in table.columns)
            yield ""


def _meaning(column: Column) -> str:
    values = "; ".join(f"{value}: {shown}" if shown != value else value for value, shown in column.choices.items())
    unit = " (shown in %)" if column.number_format.endswith("%") else ""
    return column.meaning + unit + (f" ({values})" if values else "")


# Statistics and decisions


def _modules(study: str | None = None) -> list[str]:
    """The modules with public functions among the statistics of a study; without one, of those that studies share."""
    folder = HOME / "fca" / "stats" if study is None else STUDIES[study] / "stats"
    public = re.compile(r"^(def|class) [A-Za-z]", re.MULTILINE)
    files = [file for file in sorted(folder.rglob("*.py")) if public.search(file.read_text(encoding="utf-8"))]
    paths = [file.relative_to(HOME).with_suffix("").as_posix() for file in files]
    return [path.replace("/", ".").removesuffix(".__init__") for path in paths]


def _with_statistics() -> list[str]:
    """The studies that have statistics of their own."""
    return [study for study in STUDIES if _modules(study)]


def _short(module: str) -> str:
    """fca.stats.intervals -> intervals, fca.studies.irt.stats.fit -> irt.fit, fca.studies.irt.stats -> irt."""
    return re.sub(r"^fca\.(studies\.|stats\.)|\.stats(?=\.|$)", "", module)


def _place_of(module: str) -> str:
    return f"statistics/{_short(module)}.md"


def _page_of(module: str) -> dict[str, str]:
    """An entry of the navigation."""
    return {_short(module): _place_of(module)}


def _module(module: str) -> Iterator[str]:
    yield f"# {_short(module)}\n"
    yield f"::: {module}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false"


def _statistics() -> Iterator[str]:
    yield "# Statistics\n\nThe numerical library: arrays in, arrays out, no files, no configuration, no torch."
    yield "What the numbers on a page mean stands in [How each number is computed](../numbers.md).\n"
    yield "## What studies share\n"
    yield from map(_line_of, _modules())
    for study in _with_statistics():
        yield f"\n## [{_name_of(study)}](../studies/{study}.md)\n"
        yield from map(_line_of, _modules(study))


def _line_of(module: str) -> str:
    """A link to the page of a module, with the first line of its docstring."""
    file = HOME.joinpath(*module.split("."))
    text = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    first = re.match(r'"""(.+?)(?:"""|\n)', text)
    return f"- [{_short(module)}]({_short(module)}.md): {_text(first[1] if first else '')}"


def _decisions() -> Iterator[str]:
    yield "# Decisions\n\nHalf a page each: what was decided, what was tried instead, and why.\n"
    for file in sorted((HOME / "docs" / "adr").glob("*.md")):
        title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield f"- [{title}](adr/{file.name})"


def _text(text: str) -> str:
    """Without what Markdown would take for its own, but for code."""
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"([*_\[\]])", r"\\\1", part).replace("<", "&lt;").replace("{", "&#123;") for part in parts[::2]
    ]
    return "`".join(parts)


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")
