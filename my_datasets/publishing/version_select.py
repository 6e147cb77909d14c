"""Which release a reference means."""

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.errors import ReleaseNotFoundError, YankedError, explain
from my_datasets.publishing.model.index import Index, Release, ReleaseState
from my_datasets.publishing.model.record import key_of

_SHOWN = 10


def chosen(index: Index, reference: DatasetReference, url: str) -> tuple[str, Release]:
    """Returns the release that a reference means: the highest one that was not withdrawn.

    Args:
      index: The releases of the dataset.
      reference: What is wanted; without a config, the default one.
      url: The store's, for messages.

    Returns:
      Its name in the index, and what the index says of it.

    Raises:
      ReleaseNotFoundError: There is none.
      YankedError: It was withdrawn.
    """
    config = reference.config or index.default_config
    versions = index.versions(config)
    wanted = reference.version or VersionPattern(None, None, None)
    matching = {version: one for version, one in versions.items() if wanted.matches(version)}
    good = [version for version, one in matching.items() if one.state is ReleaseState.PUBLISHED]
    if good:
        return key_of(config, max(good)), versions[max(good)]
    yanked = {v: one for v, one in matching.items() if one.state is ReleaseState.YANKED}
    if yanked:
        raise _yanked(index.dataset, config, yanked, url)
    raise _missing(index, reference, config, versions, url)


def _yanked(
    dataset: str, config: str | None, yanked: dict[VersionNumber, Release], url: str
) -> YankedError:
    name = f"{dataset}/{config}" if config else dataset
    told = [f"{name}:{version}: {one.message}" for version, one in sorted(yanked.items())]
    return YankedError(
        explain(
            f"What is meant was withdrawn from {url}.",
            *told[-_SHOWN:],
            fix="ask for another version; my-datasets ls shows them",
        )
    )


def _missing(
    index: Index, reference: DatasetReference, config: str | None,
    versions: dict[VersionNumber, Release], url: str,
) -> ReleaseNotFoundError:  # fmt: skip
    there = [
        str(version) for version, one in versions.items() if one.state is ReleaseState.PUBLISHED
    ]
    placing = [
        str(version) for version, one in versions.items() if one.state is ReleaseState.PLACING
    ]
    configs = index.configs
    return ReleaseNotFoundError(
        explain(
            f"{url} has no release of {str(reference)!r}.",
            f"Its versions there: {', '.join(there[-_SHOWN:]) or 'none'}",
            f"Being published right now: {', '.join(placing)}" if placing else "",
            f"Its configs there: {', '.join(configs[:_SHOWN])}"
            if configs and config not in configs
            else "",
            fix="ask for one of those; my-datasets ls shows what there is",
        )
    )
