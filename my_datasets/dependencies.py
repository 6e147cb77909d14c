"""The package's extras, and the `pip install` command for a missing module.

setup.py executes this file to read `EXTRAS`, so importing it must not import the rest of the
package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from my_datasets.errors import MissingDependencyError

BEAM = "apache-beam>=2.65,<3"
# Image decoders; also in the base requirements.
IMAGES = ["opencv-python-headless>=4.10", "pillow>=10", "simplejpeg>=1.8"]

# Extra -> its requirements.
EXTRAS = {
    "audio": ["soundfile>=0.12"],  # sources.audio_folder
    # In the base requirements as long as the `tfds` command needs it; rely on the extra instead.
    "beam": [BEAM, "grpcio>=1.60"],  # my-datasets beam-worker
    "bigquery": ["adbc-driver-bigquery>=1.3"],
    "dask": [BEAM, "dask>=2024.8", "distributed>=2024.8"],  # build --beam-option runner=dask
    # HTML pages, with examples shown as images.
    "catalog": ["jinja2>=3.1", "markdown-it-py>=3", "markupsafe>=2.1", "pillow>=10"],
    "compressed": ["rapidgzip>=0.14"],  # large .gz and .bz2 files in parallel
    "images": IMAGES,
    "gcs": ["google-cloud-storage>=3.1"],  # stores in gs://
    "grain": ["grain>=0.2.10"],  # grain_dataset
    # stream, my-datasets snapshot
    "kafka": ["confluent-kafka>=2.6", "fastavro>=1.9"],
    # my-datasets verify --near-duplicates
    "near-duplicates": ["datasketch>=1.6.5", "imagehash>=4.3", "pillow>=10"],
    "plots": ["matplotlib>=3.8"],  # my-datasets bench --plot
    "s3": ["boto3>=1.36", "botocore>=1.36"],  # stores in s3://
    "signing": ["cryptography[ssh]>=43"],  # signed releases
    "text": ["tokenizers>=0.20"],  # text.train_tokenizer, plan(tokenizer=...)
    "torch": ["torch>=2.4"],  # torch_loader
    "video": ["av>=12", "pillow>=10"],  # sources.video_folder
    "sql": ["adbc-driver-postgresql>=1.3", "adbc-driver-sqlite>=1.3"],
    # my_datasets.testing: TFDS's own test tools import both without declaring them.
    "test": ["dill>=0.3.8", "pytest>=8"],
}

# Module -> the extra that provides it.
_EXTRA_OF = {
    "PIL": "images",
    "adbc_driver_bigquery": "bigquery",
    "adbc_driver_postgresql": "sql",
    "adbc_driver_sqlite": "sql",
    "apache_beam": "beam",
    "av": "video",
    "boto3": "s3",
    "botocore": "s3",
    "confluent_kafka": "kafka",
    "cryptography": "signing",
    "cv2": "images",
    "dask": "dask",
    "datasketch": "near-duplicates",
    "dill": "test",
    "distributed": "dask",
    "fastavro": "kafka",
    "google.cloud.storage": "gcs",
    "grain": "grain",
    "grpc": "beam",
    "imagehash": "near-duplicates",
    "jinja2": "catalog",
    "markdown_it": "catalog",
    "markupsafe": "catalog",
    "matplotlib": "plots",
    "pytest": "test",
    "rapidgzip": "compressed",
    "simplejpeg": "images",
    "soundfile": "audio",
    "tokenizers": "text",
    "torch": "torch",
}

# Package that provides each non-Python program.
_PROGRAMS = {"ffmpeg": "ffmpeg", "ffprobe": "ffmpeg"}


def extra_of(module: str) -> str | None:
    """Returns the extra that provides a module, or None.

    Args:
      module: Its import name. If the full name is not listed, its top-level package is looked up.
    """
    return _EXTRA_OF.get(module) or _EXTRA_OF.get(module.partition(".")[0])


def install_command(module: str) -> str:
    """Returns the command that installs a module and the rest of its extra.

    The command lists the requirements rather than the extra: `my_datasets[s3]` only installs from
    an index that has this package, whereas the requirements also work with a checkout or a wheel.

    Args:
      module: Its import name, or the name of an extra.
    """
    extra = module if module in EXTRAS else extra_of(module)
    requirements = EXTRAS[extra] if extra else [module.partition(".")[0]]
    return "pip install " + " ".join(f"'{requirement}'" for requirement in requirements)


def missing_dependency(module: str, *, needed_for: str) -> MissingDependencyError:
    """Returns the error for a module that is not installed.

    Args:
      module: Its import name.
      needed_for: The operation that requires it; completes "is needed for ...".
    """
    from my_datasets.errors import MissingDependencyError

    return MissingDependencyError(
        f"The module {module} is needed for {needed_for}, and is not installed.",
        fix=install_command(module),
    )


def missing_program(program: str, *, needed_for: str) -> MissingDependencyError:
    """Returns the error for a program that is not installed.

    Args:
      program: The name of its executable.
      needed_for: The operation that requires it; completes "is needed for ...".
    """
    from my_datasets.errors import MissingDependencyError

    package = _PROGRAMS.get(program, program)
    return MissingDependencyError(
        f"The program {program} is needed for {needed_for}, and is not on PATH.",
        fix=f"install it: apt-get install {package}, brew install {package} or "
        f"conda install -c conda-forge {package}",
    )
