"""The versions that a builder's code offers, and TFDS's `BLOCKED_VERSIONS`, without TFDS.

They are read from the builder's class, or from its source alone.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from my_datasets.core.version import VersionNumber, VersionPattern

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


@dataclass(frozen=True)
class Blocked:
    """What a builder's code says must not be used; with TFDS's meaning.

    Attributes:
      versions: The reason, or None, for each version of which all configs are blocked.
      configs: The reason, or None, by version and config.
    """

    versions: Mapping[str, str | None] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    def reason(self, version: VersionNumber | str, config: str | None) -> str | None:
        """Returns why a version must not be used; None if it may be.

        Args:
          version: The version.
          config: Its config; None for a dataset that has none.
        """
        text = str(version)
        if text in self.versions:
            return self.versions[text] or f"Version {text} is blocked."
        if config is not None and config in self.configs.get(text, {}):
            said = self.configs[text][config]
            return said or f"Config {config} for version {text} is blocked."
        return None


class _BlockedVersions(Protocol):
    """TFDS's class of that name, or `Blocked`."""

    @property
    def versions(self) -> Mapping[str, str | None]: ...

    @property
    def configs(self) -> Mapping[str, Mapping[str, str | None]]: ...


@dataclass(frozen=True)
class DeclaredVersions:
    """The versions of a dataset that its code declares.

    Attributes:
      current: `VERSION`, the default if no version is named; None if unknown.
      others: `SUPPORTED_VERSIONS`, newest first.
      buildable: Those of `others` that the code also builds, newest first.
      blocked: `BLOCKED_VERSIONS`.
      is_sure: Whether `blocked` is known; if not, the code must be imported to find out.
    """

    current: VersionNumber | None = None
    others: tuple[VersionNumber, ...] = ()
    buildable: tuple[VersionNumber, ...] = ()
    blocked: Blocked = field(default_factory=Blocked)
    is_sure: bool = True

    @property
    def versions(self) -> tuple[VersionNumber, ...]:
        """All versions: the current one, then other buildable ones, then load-only ones."""
        only_loaded = (one for one in self.others if one not in self.buildable)
        return tuple(dict.fromkeys((*self.built, *only_loaded)))

    @property
    def built(self) -> tuple[VersionNumber, ...]:
        """The versions that the code builds, the current one first."""
        return (*((self.current,) if self.current else ()), *self.buildable)

    def newest(self, pattern: VersionPattern, config: str | None) -> VersionNumber | None:
        """Returns the version that a pattern resolves to if none is prepared; None if none matches.

        Prefers the current version, then versions that the code builds. Skips blocked versions.
        """
        return next((one for one in self.usable(config) if pattern.matches(one)), None)

    def builds(self, version: object) -> bool:
        """Returns whether the code builds a version."""
        return VersionNumber.parse(str(version)) in self.built

    def reasons(self, pattern: VersionPattern, config: str | None) -> dict[VersionNumber, str]:
        """Returns the matching versions that are blocked, with the reasons."""
        reason_of = {one: self.blocked.reason(one, config) for one in self.versions}
        return {one: why for one, why in reason_of.items() if why and pattern.matches(one)}

    def usable(self, config: str | None) -> list[VersionNumber]:
        """Returns the versions that are not blocked."""
        return [one for one in self.versions if self.blocked.reason(one, config) is None]

    def described(self, config: str | None) -> str:
        """Returns the versions for a message, such as `1.1.0, 1.0.0 (only loaded)`."""
        said = []
        for one in self.versions:
            notes = ["only loaded"] if one not in self.built else []
            notes += ["blocked"] if self.blocked.reason(one, config) else []
            said.append(f"{one}{' (' + ', '.join(notes) + ')' if notes else ''}")
        return ", ".join(said) or "none"


def of_versions(
    versions: Iterable[object],
    buildable: Iterable[object],
    blocked: _BlockedVersions | None,
    *,
    is_sure: bool = True,
) -> DeclaredVersions:
    """Returns the `DeclaredVersions` from the versions that a builder declares.

    Args:
      versions: The current version, which may be None, and the supported ones.
      buildable: The supported versions that are built besides the current one.
      blocked: TFDS's `BlockedVersions`, or None.
      is_sure: Whether it is known which versions are blocked.
    """
    current, *others = [_version(one) for one in versions]
    known = sorted({one for one in others if one is not None}, reverse=True)
    also = {_version(one) for one in buildable}
    if known and current is not None:
        also.add(max(current, known[0]))  # TFDS also builds the newest one on request
    return DeclaredVersions(
        current,
        tuple(known),
        tuple(one for one in known if one in also and one != current),
        Blocked(dict(blocked.versions), dict(blocked.configs)) if blocked else Blocked(),
        is_sure,
    )


def of_class(cls: type) -> DeclaredVersions:
    """Returns what a builder class offers, using the default config where configs differ."""
    return of_versions(
        (getattr(cls, "VERSION", None), *getattr(cls, "SUPPORTED_VERSIONS", ())),
        getattr(cls, "BUILDABLE_VERSIONS", ()),
        getattr(cls, "BLOCKED_VERSIONS", None),
    )


def of_builder(builder: "tfds.core.DatasetBuilder") -> DeclaredVersions:
    """Returns what a builder offers for its config."""
    also = getattr(builder, "BUILDABLE_VERSIONS", ())
    return of_versions(builder.versions, also, builder.blocked_versions)


def of_source(source: bytes) -> DeclaredVersions:
    """Returns what the source of a builder's module offers, without importing it.

    Understands literals, `tfds.core.Version(...)`, `BlockedVersions(...)` and names bound to these,
    in the class `Builder` and its base classes in the same module.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return DeclaredVersions()  # importing it fails as well
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    found = _of_class("Builder", classes, dict(_assigned(tree.body, {})))
    blocked = found.get("BLOCKED_VERSIONS")
    is_said = any(map(_declares_blocked, ast.walk(tree)))
    return of_versions(
        (found.get("VERSION"), *_listed(found.get("SUPPORTED_VERSIONS"))),
        _listed(found.get("BUILDABLE_VERSIONS")),
        blocked if isinstance(blocked, Blocked) else None,
        is_sure=isinstance(blocked, Blocked) or not is_said,
    )


class _Unknown:
    """The value of an expression that cannot be evaluated statically."""


_UNKNOWN = _Unknown()


def _of_class(
    name: str, classes: Mapping[str, ast.ClassDef], of_module: Mapping[str, object]
) -> dict[str, object]:
    """Returns the values that a class declares, or inherits from classes in the same module."""
    if name not in classes:
        return dict(of_module)
    others = {other: cls for other, cls in classes.items() if other != name}
    inherited: dict[str, object] = {}
    for base in map(ast.unparse, reversed(classes[name].bases)):
        inherited |= _of_class(base, others, of_module) if base in others else {}
    known = {**of_module, **inherited}
    return {**known, **dict(_assigned(classes[name].body, known))}


def _declares_blocked(node: ast.AST) -> bool:
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    return name == "BLOCKED_VERSIONS" and isinstance(getattr(node, "ctx", None), ast.Store)


def _assigned(
    body: Iterable[ast.stmt], names: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    known = dict(names)
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
                known[target.id] = _value(node.value, known)
                yield target.id, known[target.id]


def _value(node: ast.expr | None, names: Mapping[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, _UNKNOWN)
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(one, names) for one in node.elts]
        return _UNKNOWN if _UNKNOWN in values else values
    if isinstance(node, ast.Dict):
        keys = [_value(one, names) for one in node.keys]
        values = [_value(one, names) for one in node.values]
        return _UNKNOWN if _UNKNOWN in (*keys, *values) else dict(zip(keys, values, strict=True))
    if isinstance(node, ast.Call):
        return _made(node, names)
    return _UNKNOWN


def _made(node: ast.Call, names: Mapping[str, object]) -> object:
    what = ast.unparse(node.func).rpartition(".")[2]
    given = [_value(one, names) for one in node.args]
    named = {str(one.arg): _value(one.value, names) for one in node.keywords}
    if what == "Version" and given and isinstance(given[0], str):
        return given[0]
    if what == "BlockedVersions" and _UNKNOWN not in (*given, *named.values()):
        fields: dict[str, Any] = {
            **dict(zip(("versions", "configs"), given, strict=False)),
            **named,
        }
        if set(fields) <= {"versions", "configs"} and all(
            isinstance(one, dict) for one in fields.values()
        ):
            return Blocked(**fields)
    return _UNKNOWN


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _version(value: object) -> VersionNumber | None:
    return VersionNumber.parse(str(value))
