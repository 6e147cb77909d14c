"""HTML pages: reports of statistics, verifications and diffs, and the catalog site of a store."""

from my_datasets.dependencies import missing_dependency

try:
    import jinja2
    import markdown_it
    import markupsafe
except ModuleNotFoundError as missing:
    raise missing_dependency(missing.name or "jinja2", needed_for="HTML pages") from missing

del jinja2, markdown_it, markupsafe
