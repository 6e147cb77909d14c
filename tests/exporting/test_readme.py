"""Cards: YAML that is read, and text in which nothing is markup that should not be."""

import json

import pytest
import yaml
from markdown_it import MarkdownIt

from my_datasets.exporting.descriptions import readme
from my_datasets.exporting.version_summary import About, Feature
from my_datasets.printable import printable
from tests.catalog.markup import HOSTILE

NOTED = json.dumps(
    {"info": {"features": {"x": {"dtype": "int64", "_type": "Value"}}}}
)  # fmt: skip


def card(**changes):
    values = {
        "name": "digits", "version": "1.0.0", "description": "# digits\n\nSmall images.",
        "licence": "CC BY 4.0", "examples": {"train": 5000, "test": 10},
        "features": [Feature("x", "tensor", "int64", "", "A number.")], "modalities": ["image"],
    }  # fmt: skip
    return About(**{**values, **changes})


def parts(text):
    empty, head, body = text.split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(head), body


def test_what_the_hub_reads():
    head, body = parts(readme(card(), NOTED, {"train": 100, "test": 7}))
    assert head["license"] == "cc-by-4.0"
    assert head["size_categories"] == ["1K<n<10K"]
    assert head["tags"] == ["image", "my_datasets"]
    assert head["dataset_info"]["features"] == [{"name": "x", "dtype": "int64"}]
    assert head["dataset_info"]["splits"][1] == {
        "name": "test", "num_bytes": 7, "num_examples": 10
    }  # fmt: skip
    assert "| train | 5,000 | 100 B |" in body
    assert body.count("# digits") == 1


def test_other_licences_are_named():
    head, _ = parts(readme(card(licence="Ours only"), NOTED, {"train": 1}))
    assert (head["license"], head["license_name"]) == ("other", "Ours only")
    assert "license" not in parts(readme(card(licence=""), NOTED, {"train": 1}))[0]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_becomes_markup(text):
    about = card(
        name=text, description=text, licence=text, citation=f"{text}\n```\n<script>", notes=text,
        features=[Feature(text, text, text, "", text)], examples={text: 3},
    )  # fmt: skip
    head, body = parts(readme(about, NOTED, {text: 1}))
    assert head["pretty_name"] == text
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    for tag in ("<script", "<img", "<svg"):
        assert tag not in shown.lower(), tag


def test_hidden_characters_of_names_are_escaped():
    """Names of features stay as they are, for who parses the head."""
    name = "a\u202eb\u200bc\U000e0041"
    noted = json.dumps({"info": {"features": {name: {"dtype": "int64", "_type": "Value"}}}})
    about = card(features=[Feature(name, "tensor", "int64", "", "A number.")])
    text = readme(about, noted, {"train": 1})
    assert printable(text) == text
    assert parts(text)[0]["dataset_info"]["features"] == [{"name": name, "dtype": "int64"}]


@pytest.mark.parametrize("opened", ["```", "~~~~", "> ```", "* ~~~", "1. ```", "`````x", "\\```"])
@pytest.mark.parametrize("place", ["description", "notes"])
def test_a_fence_that_is_not_closed_reaches_no_further(opened, place):
    given = {"citation": "@misc{x}\n```\n<img src=x>\n<script>alert(1)</script>", "notes": ""}
    body = parts(readme(card(**{**given, place: f"Numbers.\n\n{opened}"}), NOTED, {"train": 1}))[1]
    shown = MarkdownIt("commonmark", {"html": True}).render(body)
    assert "<img" not in shown
    assert "<script" not in shown
    assert "<h2>Citation</h2>" in shown


@pytest.mark.parametrize(
    "image",
    ["![i](http://evil.example/x.png)", "\\\\![i](http://e/x)", "\\!![i](http://e/x)",
     "![i]\n\n[i]: http://e/x", "[![i](http://e/x)](http://e/y)", "!\u200b[i](http://e/x)"],
)  # fmt: skip
def test_no_image_is_fetched(image):
    about = card(description=image, notes=image, licence=image, citation=image)
    shown = MarkdownIt("commonmark").render(parts(readme(about, NOTED, {"train": 1}))[1])
    assert "<img" not in shown
