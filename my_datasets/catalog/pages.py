"""Renders page templates, builders' Markdown, and reports as self-contained pages.

Everything but our own markup is escaped. HTML from Markdown runs nothing and fetches nothing.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import jinja2
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup

from my_datasets.catalog import plots
from my_datasets.catalog.feature_summary import distributions, in_usual_order, summaries
from my_datasets.catalog.plots import shortened
from my_datasets.comparison.diff import Diff
from my_datasets.core.json_types import JsonObject
from my_datasets.core.sizes import human_size
from my_datasets.statistics.drift import DriftedStatistic

if TYPE_CHECKING:
    from my_datasets.verification.verifier import Report

# Raised by templates for missing values.
UnshowableError = jinja2.UndefinedError

# Headings in a text are below those of the page.
_BELOW = 2
_LOWEST = 6


def render(template: str, values: JsonObject) -> str:
    """Renders a template; texts are escaped unless they are `Markup`."""
    return _environment().get_template(template).render(values)


def static(name: str) -> str:
    """Returns the text of a static file."""
    return (resources.files(__package__) / "static" / name).read_text("utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    # For all templates, whatever their names.
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("my_datasets.catalog"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": plots.number,
        "rule": plots.rule,
        "size": human_size,
        "shortened": plots.shortened,
        "web_address": web_address,
    }
    made.globals["style"] = lambda: Markup(static("catalog.css"))  # noqa: S704 - it is ours
    return made


def web_address(text: object) -> str:
    """Returns a URL that is safe in a link, else "", for example for `javascript:`."""
    found = str(text or "").strip()
    is_plain = found.isprintable() and not set(found) & set(" \"'<>\\")
    return found if is_plain and found.lower().startswith(("https://", "http://")) else ""


def prose(text: str, title: str = "") -> Markup:
    """Converts Markdown to HTML; escapes HTML in it, and shows no images.

    A heading at the beginning that equals the page's `title` is dropped.
    """
    parser = _parser()
    tokens = parser.parse(text.strip())
    if title and len(tokens) > 2 and tokens[0].tag == "h1" and tokens[1].content == title:
        tokens = tokens[3:]
    level = 0
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            # No level is skipped.
            wanted = min(int(token.tag[1:]) + _BELOW, _LOWEST)
            if token.type == "heading_open":
                level = min(wanted, level + 1) if level else _BELOW + 1
            token.tag = f"h{level}"
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - it escapes


def first_words(text: str, title: str = "", most: int = 200) -> str:
    """Returns the first paragraph of Markdown as plain text of at most `most` characters.

    A paragraph that equals `title` is skipped.
    """
    tokens = _parser().parse(text.strip())
    for at, token in enumerate(tokens):
        if token.type == "inline" and tokens[at - 1].type == "paragraph_open":
            words = " ".join(_plain(token.children or []).split())
            if words and words != title:
                return shortened(words, most)
    return ""


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(
        one.content if one.type in ("text", "code_inline") else " "
        for one in tokens
        if one.type in ("text", "code_inline", "softbreak", "hardbreak")
    )


@functools.cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    made.validateLink = lambda url: bool(web_address(url))  # type: ignore[method-assign]
    made.add_render_rule("link_open", _link)
    made.add_render_rule("table_open", _table)
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return made


def _link(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, _env: object
) -> str:
    tokens[at].attrSet("rel", "noopener nofollow")
    return str(self.renderToken(tokens, at, options, {}))


def _table(*_: object) -> str:
    return '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>\n'


def statistics_page(name: str, statistics: JsonObject) -> str:
    """Returns a page with the statistics of a version, by split as in its manifest."""
    examples = {split: statistics[split]["examples"] for split in in_usual_order(statistics)}
    return render(
        "statistics_report.html",
        {"name": name, "examples": examples, "features": summaries(statistics)},
    )


def verification_page(reports: "Sequence[Report]") -> str:
    """Returns a page with the results of verifying versions."""
    return render("verification_report.html", {"reports": reports})


def diff_page(found: Diff, before: JsonObject | None, after: JsonObject | None) -> str:
    """Returns a page with the differences between two versions.

    `before` and `after` are their statistics by split, as in the manifests; None if there are none.
    """
    values = {
        "diff": found,
        "moved": list(moved_plots(found.moved, before or {}, after or {})),
        "has_statistics": bool(before and after),
    }
    return render("diff_report.html", values)


@dataclass(frozen=True)
class MovedPlot:
    """A statistic that changed, with a plot of both versions; empty if it cannot be drawn."""

    moved: DriftedStatistic
    plot: Markup


def moved_plots(
    moved: Sequence[DriftedStatistic], before: JsonObject, after: JsonObject
) -> Iterator[MovedPlot]:
    """Yields changed statistics with plots, largest change first; see `diff_page`."""
    for one in sorted(moved, key=lambda one: -one.distance):
        both = [side[one.split]["features"][one.feature] for side in (before, after)]
        yield MovedPlot(one, _both(one, *both))


def _both(one: DriftedStatistic, before: JsonObject, after: JsonObject) -> Markup:
    title = f"{one.statistic.capitalize()} of {one.feature} in {one.split}"
    counts = before.get("classes"), after.get("classes")
    if one.statistic == "values" and counts[0] and counts[1]:
        return plots.compared_bars(counts[0], counts[1], title)
    drawn = dict(distributions(before)), dict(distributions(after))
    if one.statistic in drawn[0] and one.statistic in drawn[1]:
        return plots.overlaid(drawn[0][one.statistic], drawn[1][one.statistic], title)
    tops = [
        {str(value["value"]): value["count"] for value in side.get("top", {}).get("values", [])}
        for side in (before, after)
    ]
    if one.statistic == "values" and all(tops):
        return plots.compared_bars(tops[0], tops[1], title)
    return Markup("")
