"""Static checks of a builder's source."""

import ast
import difflib
from collections.abc import Iterator

from my_datasets.checking.target import CheckTarget
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.version import VersionNumber

_REQUIRED = {
    "_info": "returns tfds.core.DatasetInfo, with the features",
    "_split_generators": "returns {'train': ...}",
}
_METHODS = (*_REQUIRED, "_generate_examples")
_BASES = ("Builder", "GeneratorBasedBuilder", "BeamBasedBuilder")
# Functions that only read local files, while paths may be in an object store.
_LOCAL_ONLY = {
    ("os", "listdir"), ("os", "walk"), ("os", "scandir"), ("os.path", "exists"),
    ("os.path", "isfile"), ("os.path", "isdir"), ("glob", "glob"), ("glob", "iglob"),
}  # fmt: skip


def issues(subject: CheckTarget) -> Iterator[Issue]:
    """Yields the issues in a builder's source."""
    file = subject.source.name
    try:
        tree = ast.parse(subject.source.read_bytes())
    except SyntaxError as error:
        yield Issue(
            "syntax", f"{file}:{error.lineno}", f"The module is no Python: {error.msg}.",
            "correct that line",
        )  # fmt: skip
        return
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    builder = next((node for node in classes if node.name == "Builder"), None)
    if builder is None:
        yield _no_builder(file, classes)
        return
    yield from _methods(file, builder)
    yield from _versions(file, builder)
    yield from _local_only(file, tree)


def _no_builder(file: str, classes: list[ast.ClassDef]) -> Issue:
    near = [node for node in classes if any(base in _BASES for base in _base_names(node))]
    return Issue(
        "class-name",
        f"{file}:{near[0].lineno}" if near else file,
        "The module has no class called Builder.",
        "call the builder's class Builder: the dataset's name comes from the module",
        expected="class Builder(my_datasets.Builder)",
        found=", ".join(node.name for node in near or classes) or "no class",
    )


def _base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def _methods(file: str, builder: ast.ClassDef) -> Iterator[Issue]:
    if not builder.bases:
        yield Issue(
            "base-class", f"{file}:{builder.lineno}", "The class Builder derives from nothing.",
            "write class Builder(my_datasets.Builder)",
        )  # fmt: skip
        return
    own = {
        node.name: node
        for node in builder.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    for name, what in _REQUIRED.items():
        if name in own:
            continue
        rest = [other for other in own if other not in _METHODS]
        near = difflib.get_close_matches(name, rest, n=1, cutoff=0.75)
        where = own[near[0]] if near else builder
        yield Issue(
            "method-name" if near else "method-missing",
            f"{file}:{where.lineno}",
            f"The builder has no method {name}.",
            f"rename {near[0]}" if near else f"write it; it {what}",
            found=near[0] if near else "",
        )
    wanted = "_generate_examples"
    is_called = any(
        isinstance(node, ast.Attribute) and node.attr == wanted for node in ast.walk(builder)
    )
    if is_called and wanted not in own:
        near = difflib.get_close_matches(wanted, own, n=1, cutoff=0.75)
        yield Issue(
            "method-name" if near else "method-missing",
            f"{file}:{own[near[0]].lineno if near else builder.lineno}",
            f"_split_generators calls {wanted}, which the builder does not have.",
            f"rename {near[0]}" if near else "write it; it yields (key, example)",
            found=near[0] if near else "",
        )


def _versions(file: str, builder: ast.ClassDef) -> Iterator[Issue]:
    assigned: dict[str, ast.Assign | ast.AnnAssign] = {}
    for node in builder.body:
        if isinstance(node, ast.Assign):
            assigned |= {ast.unparse(target): node for target in node.targets}
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            assigned[ast.unparse(node.target)] = node
    if "VERSION" not in assigned:
        if "BUILDER_CONFIGS" not in assigned:  # each config may have its own version
            yield Issue(
                "version", f"{file}:{builder.lineno}", "The builder has no VERSION.",
                "write VERSION = tfds.core.Version('1.0.0')",
            )  # fmt: skip
        return
    versions = _texts(assigned["VERSION"])
    for text in versions:
        if VersionNumber.parse(text) is None:
            yield Issue(
                "version", f"{file}:{assigned['VERSION'].lineno}", f"{text!r} is no version.",
                "write three numbers: tfds.core.Version('1.0.0')",
            )  # fmt: skip
            return
    if "SUPPORTED_VERSIONS" in assigned:
        versions += _texts(assigned["SUPPORTED_VERSIONS"])
    notes = assigned.get("RELEASE_NOTES")
    known = set(_texts(notes)) if notes is not None else set()
    for text in versions:
        if text not in known:
            yield Issue(
                "release-notes",
                f"{file}:{(notes or assigned['VERSION']).lineno}",
                f"The version {text} has no release notes.",
                f"write RELEASE_NOTES = {{{text!r}: '...'}}, with what is new in it",
            )


def _texts(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Returns the strings in the assigned value; for a dict, those in its keys."""
    value = node.value
    inside = value.keys if isinstance(value, ast.Dict) else [value]
    return [
        found.value
        for part in inside
        if part is not None
        for found in ast.walk(part)
        if isinstance(found, ast.Constant) and isinstance(found.value, str)
    ]


def _local_only(file: str, tree: ast.Module) -> Iterator[Issue]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        of, _, name = ast.unparse(node.func).rpartition(".")
        if (of, name) in _LOCAL_ONLY or (not of and name == "open"):
            yield Issue(
                "local-files",
                f"{file}:{node.lineno}",
                f"{ast.unparse(node.func)}() reads only files of this machine; paths from "
                "dl_manager may be others.",
                "use the paths' own methods, epath.Path(path).open() or .iterdir(), or a source",
                severity=Severity.WARNING,
            )
