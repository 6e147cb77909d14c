"""Whether splits are what the manifest declares: proved once more, from the examples alone."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from my_datasets.core.issue import Issue
from my_datasets.metadata.manifest import Manifest
from my_datasets.verification.observer import ObservedShard
from my_datasets.verification.splits import column_hashes, hashed_splits, split_rules, valued_splits
from my_datasets.verification.splits.column_hashes import ColumnHashes, SplitColumn
from my_datasets.verification.splits.split_rules import Declaration, Hashed, Stratified


class SplitDeclarations:
    """A `watching.Check` of the declarations of splits.

    Attributes:
      watches: What notes the columns by which rows were split.
      not_checked: What cannot be proved, and why.
    """

    def __init__(self, manifest: Manifest | None, tree: Any) -> None:
        """Looks at what is declared.

        Args:
          manifest: The version's; None if it has none.
          tree: The features; None if they are not known.
        """
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
        reason = column_hashes.why_not(leaf) if tree is not None else "the features are not known"
        if leaf is None or reason:
            self.not_checked.append(
                f"whether splits {_joined(declaration)} are as declared by {rule.column}: {reason}"
            )
            return None
        salt = rule.salt if isinstance(rule, Hashed) else ""
        return ColumnHashes(f"split{number}", leaf, salt)

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """See `watching.Check`."""
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
            return  # told already: the column is not to be had
        self.not_checked.append(
            f"whether each example of splits {_joined(declaration)} is where the hash of its key "
            "puts it: keys are not stored"
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
            # Rows that were set aside later counted when the classes were cut; a value that is
            # missing is a class of its own, and stored as another one.
            set_aside = sum((self._manifest.quarantined if self._manifest else {}).values())
            slack = set_aside + column.watch.leaf.is_optional
            yield from valued_splits.check_stratified(declaration, rule, column, slack)

    @property
    def _options(self) -> Mapping[str, Any]:
        return self._manifest.options if self._manifest else {}

    def _limited(self, declaration: Declaration) -> None:
        self.not_checked.append(
            f"whether splits {_joined(declaration)} have their declared shares: not all of their "
            "examples were built"
        )


def _joined(declaration: Declaration) -> str:
    return ", ".join(declaration.splits.values())
