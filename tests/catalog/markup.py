"""Looks at pages as a browser takes them apart, and what of them is not ours."""

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

# Texts that would become markup, scripts or addresses wherever one place does not escape them.
HOSTILE = (
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "</style><script>alert(1)</script>",
    "]]></title></script><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "javascript:alert(1)",
    "\u202e\u0000&lt;b&gt;\ud7ff\x1b[31m",
)
_FETCHES = ("src", "srcset", "poster", "data", "background", "action", "formaction")


class Page(HTMLParser):
    """What a page has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._quiet = 0
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag in ("style", "script"):
            self._quiet += 1
            self.scripts += [""] if tag == "script" else []

    def handle_endtag(self, tag):
        if tag in ("style", "script"):
            self._quiet -= 1

    def handle_data(self, data):
        if not self._quiet:
            self.text += data
        elif self.scripts:
            self.scripts[-1] += data

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def require_harmless(text: str, *, scripts: int = 0) -> Page:
    """Fails if anything in a page runs, or is fetched from elsewhere."""
    page = Page(text)
    assert page.tags.count("script") == scripts
    assert not {"iframe", "object", "embed", "base", "form"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in _FETCHES or (name == "href" and tag == "link"):
            assert "://" not in value, (tag, name, value)
            assert not value.startswith(("//", "javascript:")), (tag, name, value)
        if name == "href":
            is_ours = (tag, value) == ("link", "data:,")  # no icon
            bad = ("javascript:", "data:", "vbscript:")
            assert is_ours or not value.strip().lower().startswith(bad)
    return page


def svg(drawn: str) -> ET.Element:
    """Returns a plot as XML, which is stricter than HTML."""
    return ET.fromstring(drawn)
