"""The files of a builder, and static checks of them: source, README, citation, tags, checksums."""

import ast
import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from my_datasets import resources
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.version import VersionNumber
from my_datasets.errors import DatasetNotFoundError
from my_datasets.resolving.registry import packaged

SUFFIX = "_dataset_builder.py"


@dataclass(frozen=True)
class CheckTarget:
    """A builder's files."""

    name: str  # the dataset's name
    source: Path  # the builder's module
    root: Path  # the directory from which the module is imported
    module: str  # its dotted name relative to `root`
    checksums: Path  # of its downloads; the file may not exist
    dummy_data: Path  # a directory that may not exist

    @property
    def folder(self) -> Path:
        """The directory of the module, with its README, citation and tags."""
        return self.source.parent


def find(name_or_path: str) -> "CheckTarget | Issue":
    """Returns the builder to check, or an issue if its files are not where TFDS expects them.

    Args:
      name_or_path: A dataset of this package, a builder's folder, or its module.

    Raises:
      DatasetNotFoundError: There is neither such a dataset nor such a path.
    """
    path = Path(name_or_path)
    if name_or_path in packaged.datasets:
        dataset = packaged.datasets[name_or_path]
        source = dataset.source_file
        root = source.parents[len(dataset.module.split(".")) - 1]
        return CheckTarget(
            dataset.name,
            source,
            root,
            dataset.module,
            resources.checksums_path(dataset.name),
            resources.dummy_data_dir(dataset.name),
        )
    if path.is_file():
        return _target(Path(os.path.realpath(path)))
    if path.is_dir():
        return _in_folder(Path(os.path.realpath(path)))
    near = difflib.get_close_matches(name_or_path, packaged.datasets, n=1)
    raise DatasetNotFoundError(
        f"No dataset or path is called {name_or_path!r}.",
        f"Did you mean {near[0]!r}?" if near else "",
        f"Datasets of this package: {', '.join(packaged.datasets)}",
        fix="pass one of those, or the folder of a builder",
    )


def _in_folder(folder: Path) -> "CheckTarget | Issue":
    module = folder / f"{folder.name}{SUFFIX}"
    if module.is_file():
        return _target(module)
    others = sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py")
    return Issue(
        "module-name",
        str(folder),
        "The folder has no builder of the same name.",
        "name the module after the folder, which is how TFDS finds it",
        expected=module.name,
        found=", ".join(others) or "no Python module",
    )


def _target(source: Path) -> "CheckTarget | Issue":
    if not source.name.endswith(SUFFIX):
        return Issue(
            "module-name",
            str(source),
            "The module does not have the name of a builder's module.",
            "rename it, and its folder, to <name>",
            expected=f"<name>{SUFFIX}",
            found=source.name,
        )
    # The outermost enclosing package; TFDS also accepts a folder without __init__.py.
    root, parts = source.parent.parent, [source.parent.name, source.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    return CheckTarget(
        source.name.removesuffix(SUFFIX),
        source,
        root,
        ".".join(parts),
        source.parent / "checksums.tsv",
        source.parent / "dummy_data",
    )


_ENTRY = re.compile(r"^\s*@\w+\s*\{", re.MULTILINE)
_SHA256 = re.compile(r"[0-9a-f]{64}")

_REQUIRED = ("_info", "_split_generators")
_GENERATE = "_generate_examples"
_METHODS = {
    "_info": "returns tfds.core.DatasetInfo, with the features",
    "_split_generators": "returns {'train': ...}",
    _GENERATE: "yields (key, example)",
}
_BASES = ("Builder", "GeneratorBasedBuilder", "BeamBasedBuilder")
# Functions that only read local files, while paths may be in an object store.
_LOCAL_ONLY = {
    ("os", "listdir"), ("os", "walk"), ("os", "scandir"), ("os.path", "exists"),
    ("os.path", "isfile"), ("os.path", "isdir"), ("glob", "glob"), ("glob", "iglob"),
}  # fmt: skip


def docs_issues(target: CheckTarget, valid_tags: frozenset[str]) -> Iterator[Issue]:
    """Yields the issues in these files."""
    readme = target.folder / "README.md"
    prose = [
        line
        for line in (readme.read_text("utf-8").splitlines() if readme.is_file() else [])
        if line.strip() and not line.startswith("#")
    ]
    if not prose:
        yield Issue(
            "readme", "README.md", "There is no page that describes the data.",
            "write README.md beside the builder; its first line of prose is the summary",
            severity=Severity.WARNING,
        )  # fmt: skip
    citations = target.folder / "CITATIONS.bib"
    if not citations.is_file() or not _ENTRY.search(citations.read_text("utf-8")):
        yield Issue(
            "citation", "CITATIONS.bib", "There is no BibTeX entry.",
            "write CITATIONS.bib beside the builder, so that the data can be cited",
            severity=Severity.WARNING,
        )  # fmt: skip
    yield from _tags(target, valid_tags)
    yield from _checksums(target)


def _tags(target: CheckTarget, valid: frozenset[str]) -> Iterator[Issue]:
    path = target.folder / "TAGS.txt"
    if not path.is_file():
        yield Issue(
            "tags", "TAGS.txt", "There are no tags.",
            "write TAGS.txt beside the builder, one TFDS tag per line",
            severity=Severity.WARNING,
        )  # fmt: skip
        return
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        tag = line.partition("#")[0].strip()
        if not tag or tag in valid:
            continue
        near = difflib.get_close_matches(tag, valid, n=1)
        yield Issue(
            "tags",
            f"TAGS.txt:{number}",
            f"TFDS has no tag {tag!r}.",
            f"write {near[0]}" if near else "remove it, or choose one from TFDS's valid_tags.txt",
        )


def _checksums(target: CheckTarget) -> Iterator[Issue]:
    path = target.checksums
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        found = ""
        if len(parts) not in (3, 4):
            found = f"{len(parts)} columns"
        elif not parts[1].isdecimal() or not int(parts[1]):
            found = f"the size {parts[1]!r}"
        elif not _SHA256.fullmatch(parts[2]):
            found = f"the SHA-256 {parts[2]!r}"
        if found:
            yield Issue(
                "checksums",
                f"{path.name}:{number}",
                "The line is not a valid record.",
                f"my-datasets checksums {target.name} --update",
                expected="address, size, SHA-256 and file name, separated by tabs",
                found=found,
            )


def source_issues(target: CheckTarget) -> Iterator[Issue]:
    """Yields the issues in a builder's source."""
    file = target.source.name
    try:
        tree = ast.parse(target.source.read_bytes())
    except SyntaxError as error:
        yield Issue(
            "syntax", f"{file}:{error.lineno}", f"The module is not valid Python: {error.msg}.",
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
        "rename the class to Builder: the dataset is named after the module",
        expected="class Builder(my_datasets.Builder)",
        found=", ".join(node.name for node in near or classes) or "no class",
    )


def _base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def _methods(file: str, builder: ast.ClassDef) -> Iterator[Issue]:
    if not builder.bases:
        yield Issue(
            "base-class", f"{file}:{builder.lineno}", "The class Builder has no base class.",
            "write class Builder(my_datasets.Builder)",
        )  # fmt: skip
        return
    own = {
        node.name: node
        for node in builder.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    missing = {name: f"The builder has no method {name}." for name in _REQUIRED}
    if any(isinstance(one, ast.Attribute) and one.attr == _GENERATE for one in ast.walk(builder)):
        missing[_GENERATE] = (
            f"_split_generators calls {_GENERATE}, which the builder does not have."
        )
    for name, problem in missing.items():
        if name in own:
            continue
        rest = [other for other in own if other not in _METHODS]
        near = difflib.get_close_matches(name, rest, n=1, cutoff=0.75)
        yield Issue(
            "method-name" if near else "method-missing",
            f"{file}:{own[near[0]].lineno if near else builder.lineno}",
            problem,
            f"rename {near[0]}" if near else f"define it; it {_METHODS[name]}",
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
                "version", f"{file}:{assigned['VERSION'].lineno}", f"{text!r} is not a version.",
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
                f"write RELEASE_NOTES = {{{text!r}: '...'}}, with the changes",
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
                f"{ast.unparse(node.func)}() reads only local files, but paths from dl_manager may "
                "be remote.",
                "use the paths' own methods, epath.Path(path).open() or .iterdir(), or a source",
                severity=Severity.WARNING,
            )
