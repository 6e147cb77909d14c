"""What a release holds: exactly what it should."""

import email
import tarfile
import zipfile

import pytest

from tests import installs

pytestmark = pytest.mark.installs


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "popen" in base.name else base) / "installs"
    directory.mkdir(exist_ok=True)
    return installs.build_distributions(directory / "dist")


@pytest.fixture(scope="session")
def sources() -> set[str]:
    return installs.source_files()


def test_the_wheel_holds_the_package_its_checksums_and_its_dummy_data(distributions, sources):
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {name for name in sources if name.startswith("my_datasets/")}
    expected |= {f"my_datasets/{n}" for n in sources if n.startswith(("checksums/", "dummy_data/"))}
    assert found == expected


def test_the_sdist_holds_all_sources_but_those_of_the_repository(distributions, sources):
    with tarfile.open(distributions["sdist"]) as sdist:
        files = {m.name.partition("/")[2] for m in sdist.getmembers() if m.isfile()}
    made = {"PKG-INFO", "setup.cfg"}
    left_out = {name for name in sources if name.startswith(".")}
    found = {name for name in files - made if ".egg-info/" not in name}
    assert found == sources - left_out


def test_the_metadata_names_the_extras_and_the_commands(distributions):
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        (metadata,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
        (entries,) = [n for n in wheel.namelist() if n.endswith("entry_points.txt")]
        message = email.message_from_bytes(wheel.read(metadata))
        found = wheel.read(entries).decode()
        assert "my-datasets = my_datasets.cli.main:main" in found
        assert (
            "my-datasets-beam-worker = my_datasets.cli.commands.build.beam_worker:worker" in found
        )
    assert set(message.get_all("Provides-Extra")) == {
        "audio",
        "beam",
        "bigquery",
        "catalog",
        "dev",
        "compressed",
        "dask",
        "gcs",
        "grain",
        "images",
        "kafka",
        "near-duplicates",
        "plots",
        "s3",
        "signing",
        "sql",
        "test",
        "text",
        "torch",
        "video",
    }
    assert message["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    base = [r for r in message.get_all("Requires-Dist") if "extra ==" not in r]
    assert "tensorflow-datasets<4.10,>=4.9.10" in base
