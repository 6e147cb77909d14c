"""What to install when an import fails: the extra of this package, or the distribution."""

from my_datasets.errors import MissingDependencyError, explain

# Top-level module -> the extra of ours that brings it (a test compares with setup.py).
_INSTALLS = {
    "PIL": "my_datasets[images]",
    "adbc_driver_bigquery": "my_datasets[bigquery]",
    "adbc_driver_postgresql": "my_datasets[sql]",
    "adbc_driver_sqlite": "my_datasets[sql]",
    "apache_beam": "my_datasets[beam]",
    "av": "my_datasets[video]",
    "cv2": "my_datasets[images]",
    "dill": "my_datasets[test]",
    "grain": "my_datasets[grain]",
    "pytest": "my_datasets[test]",
    "matplotlib": "my_datasets[plots]",
    "rapidgzip": "my_datasets[compressed]",
    "simplejpeg": "my_datasets[images]",
    "soundfile": "my_datasets[audio]",
    "tokenizers": "my_datasets[text]",
    "torch": "my_datasets[torch]",
}


def install_command(module: str) -> str:
    """Returns the command that brings a module.

    Args:
      module: Its import name; only the part before the first dot counts.
    """
    top = module.partition(".")[0]
    return f"pip install '{_INSTALLS.get(top, top)}'"


def missing_dependency(module: str, *, needed_for: str) -> MissingDependencyError:
    """Returns the error for a module that is not installed.

    Args:
      module: Its import name.
      needed_for: What cannot be done without it, to complete "is needed for ...".
    """
    return MissingDependencyError(
        explain(
            f"The module {module} is needed for {needed_for}, and is not installed.",
            mend=install_command(module),
        )
    )
