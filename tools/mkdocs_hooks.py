"""MkDocs hooks: the files outside docs/ that pages link to become pages and files of the site.

The docs link to results, examples and sources by relative paths, as code hosts resolve them. `on_files` follows these
links and publishes each target: Markdown as a page, Python as a page with its text, a directory as a list of its files,
anything else as it is. `on_page_markdown` rewrites the links. A page of docs/ that links to a file that does not exist
fails the strict build. A page of results/ may name figures that are not kept in the repository: its link becomes text.
`on_post_build` fails the build if a public name has no entry in the API pages.
"""

import ast
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PUBLISHED = ("docs", "examples", "results", "src")  # the folders whose files may become pages
# A Markdown link or image.
LINK = re.compile(r"!?\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")
TIERS = {"thinwire": "__init__.py"} | {f"thinwire.{tier}": f"{tier}.py" for tier in ("extend", "simulate", "inspect")}

log = logging.getLogger("mkdocs.hooks.thinwire")
_sources: dict[str, Path] = {}  # the file that each page was made from, by the page's path in the site's sources


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Publish what pages link to outside docs/, and what those pages link to in turn."""
    _sources.clear()
    _sources.update({file.src_uri: DOCS / file.src_uri for file in files.documentation_pages()})
    waiting = list(_sources.values())
    while waiting:
        page = waiting.pop()
        for target in _targets(page, _text(page)):
            uri = _uri(target)
            if target.is_relative_to(DOCS) or uri in _sources:
                continue
            _sources[uri] = target
            if uri.endswith(".md"):
                files.append(File.generated(config, uri, content=_text(target)))
                waiting.append(target)
            else:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave docs/, or come from a page that was published from outside."""
    source = _sources[page.file.src_uri]
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        target = _target(source, link["target"])
        if (source.is_relative_to(DOCS) and (target is None or target.is_relative_to(DOCS))) or "://" in link["target"]:
            return link[0]
        if target is None:
            log.info(f"{source.relative_to(ROOT)} links to {link['target']}, which is not in the repository")
            return link["text"]
        label = link[0].partition("](")[0]
        return f"{label}]({posixpath.relpath(_uri(target), here)}{link['anchor'] or ''})"

    return LINK.sub(rewritten, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn of public names without an entry, which fails a strict build."""
    pages = (Path(config.site_dir) / "api").glob("*/index.html")
    built = "".join(page.read_text("utf-8") for page in pages)
    for tier, path in TIERS.items():
        for name in _public_names(ROOT / "src" / "thinwire" / path):
            if f'id="{tier}.{name}"' not in built:
                log.warning(f"{tier}.{name} is public and has no entry in the API pages")


def _targets(page: Path, text: str) -> Iterator[Path]:
    """The files and directories of this repository that a page links to."""
    return (target for link in LINK.finditer(text) if (target := _target(page, link["target"])) is not None)


def _target(page: Path, link: str) -> Path | None:
    base = page if page.is_dir() else page.parent
    target = (base / link).resolve()
    inside = any(target.is_relative_to(ROOT / folder) for folder in PUBLISHED)
    if not inside or not target.exists():
        return None
    return target / "README.md" if (target / "README.md").exists() else target


def _uri(target: Path) -> str:
    """The path of a file in the site's sources. The files of docs/ are at the top."""
    path = target.relative_to(DOCS if target.is_relative_to(DOCS) else ROOT).as_posix()
    if target.is_dir():
        return f"{path}/index.md"
    return f"{path}.md" if target.suffix == ".py" else path


def _text(source: Path) -> str:
    """The Markdown of a page: of a Python file, its text; of a directory, a list."""
    if source.suffix == ".md":
        return source.read_text("utf-8")
    title = source.relative_to(ROOT).as_posix()
    if source.is_dir():
        entries = sorted(path for path in source.iterdir() if _is_listed(path))
        return "\n".join([f"# {title}\n", *(f"- [{entry.name}]({entry.name})" for entry in entries)])
    return f"# {title}\n\n````python\n{source.read_text('utf-8')}````\n"


def _is_listed(path: Path) -> bool:
    return (path / "README.md").exists() if path.is_dir() else path.suffix == ".py" and path.name != "__init__.py"


def _public_names(module: Path) -> Any:
    """The value of a module's `__all__`, read without importing it."""
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError(f"{module} has no __all__")
