"""What to install when an import fails: the extra of this package, or the distribution."""

from my_datasets.errors import MissingDependencyError, explain

# Module -> the extra of ours that brings it (a test compares with setup.py).
_INSTALLS = {
    "PIL": "my_datasets[images]",
    "adbc_driver_bigquery": "my_datasets[bigquery]",
    "adbc_driver_postgresql": "my_datasets[sql]",
    "adbc_driver_sqlite": "my_datasets[sql]",
    "apache_beam": "my_datasets[beam]",
    "av": "my_datasets[video]",
    "boto3": "my_datasets[s3]",
    "botocore": "my_datasets[s3]",
    "confluent_kafka": "my_datasets[kafka]",
    "cryptography": "my_datasets[signing]",
    "cv2": "my_datasets[images]",
    "dask": "my_datasets[dask]",
    "datasketch": "my_datasets[near-duplicates]",
    "dill": "my_datasets[test]",
    "distributed": "my_datasets[dask]",
    "fastavro": "my_datasets[kafka]",
    "google.cloud.storage": "my_datasets[gcs]",
    "grain": "my_datasets[grain]",
    "imagehash": "my_datasets[near-duplicates]",
    "grpc": "my_datasets[beam]",
    "jinja2": "my_datasets[catalog]",
    "markdown_it": "my_datasets[catalog]",
    "markupsafe": "my_datasets[catalog]",
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
      module: Its import name; what is not listed as a whole is known by its first part.
    """
    top = module.partition(".")[0]
    return f"pip install '{_INSTALLS.get(module) or _INSTALLS.get(top, top)}'"


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
