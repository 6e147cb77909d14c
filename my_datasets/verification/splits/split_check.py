"""Checks splits against their declarations in the manifest, from the examples alone."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from my_datasets.core.issue import Issue
from my_datasets.core.value_types import JsonObject
from my_datasets.metadata.manifest import Manifest
from my_datasets.verification.observer import ObservedShard
from my_datasets.verification.splits import column_hashes, hashed_splits, split_rules, valued_splits
from my_datasets.verification.splits.column_hashes import ColumnHashes, SplitColumn
from my_datasets.verification.splits.split_rules import Declaration, Hashed, Stratified


class SplitDeclarations:
    """An `observer.Check` of the declarations of splits."""

    def __init__(self, manifest: Manifest | None, tree: Any) -> None:
        """Reads the declarations in the manifest; `tree` is None if the features are unknown."""
        self._manifest = manifest
        self.not_checked: list[str] = []
        self._columns: list[tuple[Declaration, ColumnHashes | None]] = []
        declarations, notes = split_rules.read(manifest.splits if manifest else {})
        self.not_checked += notes
        for number, one in enumerate(declarations):
            self._columns.append((one, self._watch(number, one, tree)))
        self.watches: Sequence[ColumnHashes] = [watch for _, watch in self._columns if watch]

    def _watch(self, number: int, declaration: Declaration, tree: Any) -> ColumnHashes | None:
        rule = declaration.rule
        if rule.column is None:
            return None
        leaf = tree.get(declaration.feature) if isinstance(tree, Mapping) else None
        reason = column_hashes.why_not(leaf) if tree is not None else "the features are unknown"
        if leaf is None or reason:
            self.not_checked.append(
                f"whether splits {_joined(declaration)} are as declared by {rule.column}: {reason}"
            )
            return None
        salt = rule.salt if isinstance(rule, Hashed) else ""
        return ColumnHashes(f"split{number}", leaf, salt)

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """See `observer.Check`."""
        for declaration, watch in self._columns:
            present = {part: split for part, split in declaration.splits.items() if split in splits}
            one = dataclasses.replace(declaration, splits=present)
            if watch is None:
                yield from self._by_keys(one, splits)
                continue
            column = SplitColumn(watch, {split: splits[split] for split in present.values()})
            yield from self._by_values(one, column)

    def _by_keys(
        self, declaration: Declaration, splits: Mapping[str, Sequence[ObservedShard]]
    ) -> Iterator[Issue]:
        rule = declaration.rule
        if not isinstance(rule, Hashed) or rule.group is not None:
            return  # already noted: the column is unavailable
        self.not_checked.append(
            f"whether each example of splits {_joined(declaration)} is in the split of its key's "
            "hash: keys are not stored"
        )
        if "max_examples_per_split" in self._options:
            self._limited(declaration)
            return
        counts = {
            split: sum(shard.examples for shard in splits[split])
            for split in declaration.splits.values()
        }
        yield from hashed_splits.check_shares(declaration, rule, counts, "examples")

    def _by_values(self, declaration: Declaration, column: SplitColumn) -> Iterator[Issue]:
        rule = declaration.rule
        is_limited = "max_examples_per_split" in self._options
        if isinstance(rule, Hashed):
            yield from hashed_splits.check_groups(
                declaration, rule, column, self.not_checked, shares=not is_limited
            )
            if is_limited:
                self._limited(declaration)
        elif not isinstance(rule, Stratified):
            yield from valued_splits.check_valued(declaration, rule, column, self.not_checked)
        elif is_limited or "ignore_duplicates" in self._options or not declaration.is_whole:
            self._limited(declaration)
        else:
            # Quarantined rows counted when classes were split; missing values are a class of their
            # own, but stored like another one.
            set_aside = sum((self._manifest.quarantined if self._manifest else {}).values())
            slack = set_aside + column.watch.leaf.is_optional
            yield from valued_splits.check_stratified(declaration, rule, column, slack)

    @property
    def _options(self) -> JsonObject:
        return self._manifest.options if self._manifest else {}

    def _limited(self, declaration: Declaration) -> None:
        self.not_checked.append(
            f"whether splits {_joined(declaration)} have their declared shares: only some of their "
            "examples were built"
        )


def _joined(declaration: Declaration) -> str:
    return ", ".join(declaration.splits.values())
