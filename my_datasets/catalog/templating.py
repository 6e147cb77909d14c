"""How pages are made: templates in which everything that is not our own is escaped."""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from my_datasets.catalog.plots import number_format
from my_datasets.core.sizes import human_size

# What a template raises of data that lack something.
UnshowableError = jinja2.UndefinedError


def render(template: str, values: Mapping[str, Any]) -> str:
    """Returns a page.

    Args:
      template: The name of its template.
      values: What the template shows. Texts are escaped unless they are `Markup`.
    """
    return _environment().get_template(template).render(values)


def static(name: str) -> str:
    """Returns a file that pages use as it is."""
    return (resources.files(__package__) / "static" / name).read_text("utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    # Always escaped: no data may become markup, whatever a template is called.
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("my_datasets.catalog"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": number_format.number,
        "rule": number_format.rule,
        "size": human_size,
        "shortened": number_format.shortened,
        "web_address": web_address,
    }
    made.globals["style"] = lambda: Markup(static("catalog.css"))  # noqa: S704 - it is ours
    return made


def web_address(text: object) -> str:
    """Returns an address that a link may have; nothing for any other, such as `javascript:`."""
    found = str(text or "").strip()
    is_plain = found.isprintable() and not set(found) & set(" \"'<>\\")
    return found if is_plain and found.lower().startswith(("https://", "http://")) else ""
