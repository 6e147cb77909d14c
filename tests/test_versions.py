"""Several versions of a dataset in use at a time: which one is meant, built, refused."""

import json
import logging
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import my_datasets
from my_datasets import errors
from my_datasets.builders.find_builder import builders_from_code, find_builder
from my_datasets.building.options import BuildOptions
from my_datasets.cli.main import cli
from my_datasets.metadata import layout
from my_datasets.resolving import version_select
from my_datasets.resolving.lock import Lock, Locked
from my_datasets.storage import addresses

NAME = "several_versions"


class SeveralVersions(my_datasets.Builder):
    """Each minor version has a feature more; the oldest one is only loaded."""

    VERSION = tfds.core.Version("1.2.0")
    SUPPORTED_VERSIONS = [
        tfds.core.Version("0.9.0"), tfds.core.Version("1.0.0"), tfds.core.Version("1.1.0")
    ]  # fmt: skip
    BUILDABLE_VERSIONS = [tfds.core.Version("1.0.0"), tfds.core.Version("1.1.0")]
    RELEASE_NOTES = {"1.2.0": "z.", "1.1.0": "y.", "1.0.0": "x.", "0.9.0": "Before."}
    lowest = 0  # what changes the values

    def _info(self):
        names = "xyz"[: self.version.minor + 1] if self.version.major else "x"
        features = tfds.features.FeaturesDict(dict.fromkeys(names, np.int64))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for row in range(20):
            yield row, dict.fromkeys(self.info.features, row + self.lowest)


class SeveralConfigs(SeveralVersions):
    """With configs: one version of one of them is blocked."""

    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="small"), tfds.core.BuilderConfig(name="big")]
    BLOCKED_VERSIONS = tfds.core.utils.BlockedVersions(configs={"1.1.0": {"big": None}})


def build(data_dir, *versions, cls=SeveralVersions, **options):
    for version in versions:
        builder = cls(data_dir=data_dir, version=version)
        builder.download_and_prepare(build_options=BuildOptions(**options))
    return data_dir


def there(data_dir):
    return [str(one.version) for one in layout.prepared_versions(data_dir)]


def run(*arguments):
    handlers = list(logging.getLogger().handlers)
    try:
        return CliRunner().invoke(cli, [str(one) for one in arguments])
    finally:
        logging.getLogger().handlers[:] = handlers
        tfds.enable_progress_bar()


def loaded(reference, data_dir, **options):
    _, info = my_datasets.load(reference, data_dir=data_dir, with_info=True, **options)
    return str(info.version)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Two versions side by side, the older one built after the newer one."""
    return build(tmp_path_factory.mktemp("data"), "1.1.0", "1.0.0")


@pytest.fixture(autouse=True)
def _no_lock(monkeypatch):
    monkeypatch.setenv("MY_DATASETS_LOCK", "")
    version_select._warned.clear()


@pytest.fixture
def block(monkeypatch):
    """Has the builder block versions, for as long as a test lasts."""

    def set_blocked(**versions):
        found = tfds.core.utils.BlockedVersions(
            {name.strip("v").replace("_", "."): why for name, why in versions.items()}
        )
        monkeypatch.setattr(SeveralVersions, "BLOCKED_VERSIONS", found)

    return set_blocked


WANTED = [("*.*.*", "1.1.0"), ("1.*.*", "1.1.0"), ("1.1.*", "1.1.0"), ("1.0.*", "1.0.0"),
          ("1.*.0", "1.1.0"), ("1.0.0", "1.0.0")]  # fmt: skip


@pytest.mark.parametrize(("wanted", "version"), WANTED)
def test_the_newest_prepared_version_that_fits(data_dir, tmp_path, wanted, version):
    """Everywhere the same one; and 1.2.0, which the code could build, is not built for it."""
    reference = f"{NAME}:{wanted}"
    assert loaded(reference, data_dir) == version
    assert len(my_datasets.source(reference, data_dir=data_dir)[0]) == int(version[2]) + 1
    assert my_datasets.source(reference, data_dir=data_dir).name == f"{NAME}:{version}"
    plan = my_datasets.plan(reference, data_dir=data_dir)
    assert plan.stages[0].dataset == f"{NAME}:{version}"
    for make in (my_datasets.batches, my_datasets.pipeline):
        assert make(reference, data_dir=data_dir).plan.stages[0].dataset == f"{NAME}:{version}"

    info = json.loads(run("info", reference, "--data-dir", data_dir, "--json").stdout)
    assert (info["version"], info["prepared"]) == (version, True)
    (report,) = json.loads(run("verify", reference, "--data-dir", data_dir, "--json").stdout)
    assert (report["name"], report["good"]) == (f"{NAME}:{version}", True)
    found = json.loads(
        run("diff", f"{NAME}:1.0.0", reference, "--data-dir", data_dir, "--json").stdout
    )
    assert (found["new"], found["enough"]) == (f"{NAME}:{version}", True)
    lock = tmp_path / "datasets.lock"
    done = run("lock", reference, "--data-dir", data_dir, "--file", lock, "--json")
    assert json.loads(done.stdout)["datasets"][reference]["version"] == version
    assert there(data_dir) == ["1.0.0", "1.1.0"]


def said_by(key, *arguments):
    found = json.loads(run(*arguments, "--json").stdout)
    return (found[0] if isinstance(found, list) else found)[key]


MEANT = {
    "load": lambda one, data, _: f"{NAME}:{loaded(one, data)}",
    "source": lambda one, data, _: my_datasets.source(one, data_dir=data).name,
    "plan": lambda one, data, _: my_datasets.plan(one, data_dir=data).stages[0].dataset,
    "publish": lambda one, data, tmp_path: (
        my_datasets.publish(one, tmp_path / "store", data_dir=data).name
    ),
    "verify": lambda one, data, _: said_by("name", "verify", one, "--data-dir", data),
    "stats": lambda one, data, _: said_by("name", "stats", one, "--data-dir", data),
    "diff": lambda one, data, _: said_by("new", "diff", f"{NAME}:1.0.0", one, "--data-dir", data),
    "info": lambda one, data, _: f"{NAME}:{said_by('version', 'info', one, '--data-dir', data)}",
    "export": lambda one, data, tmp_path: said_by(
        "name", "export", one, "--data-dir", data, "--to", "parquet", "--output", tmp_path / "out"
    ),
}


@pytest.mark.parametrize("name", MEANT)
@pytest.mark.parametrize("wanted", [f"{NAME}:1.*.*", NAME])
def test_a_lock_means_the_same_to_everything(data_dir, tmp_path, name, wanted, monkeypatch):
    locked = Locked.of(data_dir / NAME / "1.0.0")
    lock = Lock(tmp_path / "datasets.lock", {wanted: locked})
    lock.write()
    monkeypatch.setenv("MY_DATASETS_LOCK", str(lock.path))
    assert MEANT[name](wanted, data_dir, tmp_path) == f"{NAME}:1.0.0"


def test_without_a_version_the_code_says_which(tmp_path):
    build(tmp_path, "1.1.0")
    assert loaded(NAME, tmp_path) == "1.2.0"
    assert there(tmp_path) == ["1.1.0", "1.2.0"]
    # Who does not ask the code takes the newest one that is prepared.
    assert my_datasets.source(NAME, data_dir=tmp_path).name == f"{NAME}:1.2.0"


@pytest.mark.parametrize(
    ("wanted", "version"), [("1.*.*", "1.2.0"), ("1.0.*", "1.0.0"), ("1.1.*", "1.1.0")]
)
def test_what_is_not_prepared_is_built(tmp_path, wanted, version):
    assert loaded(f"{NAME}:{wanted}", tmp_path / "loaded") == version
    (done,) = json.loads(
        run("build", f"{NAME}:{wanted}", "--data-dir", tmp_path / "built", "--json").stdout
    )
    assert (done["dataset"], done["built"]) == (f"{NAME}/{version}", True)
    plain = tfds.builder_from_directory(done["path"])
    assert sorted(plain.info.features) == list("xyz"[: int(version[2]) + 1])
    assert len(plain.as_dataset(split="train")) == 20


def test_building_takes_the_version_of_the_code_though_an_older_one_fits(tmp_path):
    build(tmp_path, "1.0.0")
    assert run("build", f"{NAME}:1.*.*", "--data-dir", tmp_path).exit_code == 0
    assert there(tmp_path) == ["1.0.0", "1.2.0"]


def message(error, call):
    with pytest.raises(error) as caught:
        call()
    said = str(caught.value)
    assert "Fix:" in said
    assert len(said.splitlines()) <= 10
    return said


@pytest.mark.parametrize("wanted", ["2.*.*", "2.0.0"])
def test_what_fits_nothing_lists_what_there_is_and_how_to_get_it(data_dir, tmp_path, wanted):
    reference = f"{NAME}:{wanted}"
    in_code = "Versions in code: 1.2.0, 1.1.0, 1.0.0, 0.9.0 (only loaded)"
    for call in (
        lambda: my_datasets.load(reference, data_dir=data_dir),
        lambda: builders_from_code(reference, data_dir=data_dir),
    ):
        said = message(errors.VersionNotFoundError, call)
        assert f"has no version {wanted}" in said
        assert in_code in said
        assert f"Versions prepared in {data_dir}: 1.0.0, 1.1.0" in said
        assert f"my-datasets build {NAME}:1.2.0" in said
    for command in (["verify"], ["lock", "--file", tmp_path / "lock"]):
        done = run(*command, reference, "--data-dir", data_dir)
        assert isinstance(done.exception, errors.NotPreparedError)
    said = message(errors.NotPreparedError, lambda: my_datasets.plan(reference, data_dir=data_dir))
    assert "Prepared there: 1.0.0, 1.1.0" in said
    assert in_code in said
    assert f"my-datasets build {NAME}:1.2.0 --data-dir {data_dir}" in said


def test_what_could_be_built_is_named_by_its_version(data_dir):
    said = message(
        errors.NotPreparedError, lambda: my_datasets.source(f"{NAME}:1.2.*", data_dir=data_dir)
    )
    assert f"Fix: my-datasets build {NAME}:1.2.0 --data-dir {data_dir}" in said


def test_a_version_that_is_only_loaded(data_dir, tmp_path):
    for call in (
        lambda: my_datasets.load(f"{NAME}:0.9.0", data_dir=data_dir),
        lambda: my_datasets.load(f"{NAME}:0.*.*", data_dir=data_dir),
        lambda: build(data_dir, "0.9.0"),
    ):
        said = message(errors.VersionNotBuildableError, call)
        assert f"{NAME}:0.9.0 is loaded where it is prepared" in said
        assert "prepared in" in said
        assert f"my-datasets build {NAME}:1.2.0" in said
    # The code of its time made it.
    old = type("Old", (SeveralVersions,), {
        "VERSION": tfds.core.Version("0.9.0"), "SUPPORTED_VERSIONS": [], "name": NAME,
    }, skip_registration=True)  # fmt: skip
    old(data_dir=tmp_path).download_and_prepare()
    manifest = addresses.as_path(tmp_path) / NAME / "0.9.0" / "my_datasets_manifest.json"
    assert manifest.exists()
    assert loaded(f"{NAME}:0.*.*", tmp_path) == "0.9.0"
    build(tmp_path, "0.9.0")  # there already: other code made it, as it must
    assert there(tmp_path) == ["0.9.0"]
    overwrite = tfds.download.DownloadConfig(
        download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS
    )
    with pytest.raises(errors.VersionNotBuildableError):
        SeveralVersions(data_dir=tmp_path, version="0.9.0").download_and_prepare(
            download_config=overwrite
        )
    assert there(tmp_path) == ["0.9.0"]


def test_data_that_are_not_prepared_name_the_version_that_is_meant(tmp_path):
    build(tmp_path, "1.0.0")
    said = message(
        errors.NotPreparedError, lambda: my_datasets.load(NAME, data_dir=tmp_path, download=False)
    )
    assert "Versions prepared there: 1.0.0" in said
    assert f"my-datasets build {NAME}:1.2.0" in said


WHY = "Half of the labels are wrong."


def test_wildcards_pass_over_blocked_versions_and_say_so(data_dir, tmp_path, block, caplog):
    block(v1_1_0=WHY)
    reference = f"{NAME}:1.*.*"
    told = f"{NAME}:1.1.0 is skipped because it is blocked: {WHY}"
    for call in (
        lambda: loaded(reference, data_dir),
        lambda: my_datasets.source(reference, data_dir=data_dir).name[-5:],
        lambda: my_datasets.source(NAME, data_dir=data_dir).name[-5:],
        lambda: json.loads(run("info", reference, "--data-dir", data_dir, "--json").stdout)[
            "version"
        ],
        lambda: json.loads(run("verify", reference, "--data-dir", data_dir, "--json").stdout)[0][
            "name"
        ][-5:],
    ):
        version_select._warned.clear()
        caplog.clear()
        assert call() == "1.0.0"
        assert told in caplog.text
    my_datasets.source(reference, data_dir=data_dir)
    assert caplog.text.count(told) == 1  # not each time


def test_a_blocked_version_is_refused_with_its_reason(data_dir, tmp_path, block):
    block(v1_1_0=WHY)
    for call in (
        lambda: my_datasets.load(f"{NAME}:1.1.0", data_dir=data_dir),
        lambda: my_datasets.load(f"{NAME}:1.1.*", data_dir=data_dir),
        lambda: my_datasets.load(f"{NAME}:1.1.*", data_dir=tmp_path),
        lambda: my_datasets.plan(f"{NAME}:1.1.0", data_dir=data_dir),
        lambda: my_datasets.source(f"{NAME}:1.1.*", data_dir=data_dir),
        lambda: my_datasets.pipeline(f"{NAME}:1.1.0", data_dir=data_dir),
        lambda: build(data_dir, "1.1.0"),
        lambda: build(tmp_path, "1.1.0"),
        lambda: SeveralVersions(data_dir=data_dir, version="1.1.0").as_dataset(split="train"),
        lambda: SeveralVersions(data_dir=data_dir, version="1.1.0").as_data_source(split="train"),
    ):
        said = message(errors.VersionBlockedError, call)
        assert f"1.1.0: {WHY}" in said
        assert "Versions that are not blocked: 1.2.0, 1.0.0" in said
    assert there(tmp_path) == []
    for command in (
        ["build", f"{NAME}:1.1.0"], ["build", f"{NAME}:1.1.*"],
        ["lock", f"{NAME}:1.1.0", "--file", tmp_path / "lock"],
    ):  # fmt: skip
        done = run(*command, "--data-dir", data_dir)
        assert isinstance(done.exception, errors.VersionBlockedError)
    assert not (tmp_path / "lock").exists()


def test_a_blocked_version_can_be_looked_at(data_dir, block):
    block(v1_1_0=WHY)
    good = run("verify", f"{NAME}:1.1.0", "--data-dir", data_dir)
    assert good.exit_code == 0
    assert run("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", "--data-dir", data_dir).exit_code == 0
    path = data_dir / NAME / "1.1.0"
    assert len(my_datasets.source(path)) == 20
    assert len(tfds.builder_from_directory(path).as_dataset(split="train")) == 20
    info = json.loads(run("info", f"{NAME}:1.1.0", "--data-dir", data_dir, "--json").stdout)
    assert {one["version"]: one["blocked"] for one in info["versions"]} == {
        "1.2.0": None, "1.1.0": WHY, "1.0.0": None, "0.9.0": None
    }  # fmt: skip
    shown = " ".join(run("info", NAME, "--data-dir", data_dir).stdout.split())
    assert f"version 1.1.0 prepared, buildable, BLOCKED: {WHY}" in shown


def test_where_all_that_is_prepared_is_blocked_another_one_is_built(tmp_path, block, caplog):
    build(tmp_path, "1.0.0")
    block(v1_0_0=WHY, v1_2_0="Too new.")
    assert loaded(f"{NAME}:1.*.*", tmp_path) == "1.1.0"
    assert "1.0.0 is skipped" not in caplog.text  # it is older
    assert f"{NAME}:1.2.0 is skipped because it is blocked: Too new." in caplog.text
    version_select._warned.clear()
    caplog.clear()
    (done,) = builders_from_code(f"{NAME}:1.*.*", data_dir=tmp_path)
    assert str(done.version) == "1.1.0"
    assert f"{NAME}:1.2.0 is skipped because it is blocked: Too new." in caplog.text
    said = message(errors.VersionBlockedError, lambda: loaded(NAME, tmp_path))
    assert "1.2.0: Too new." in said


def test_nothing_is_left(tmp_path, block):
    build(tmp_path, "1.0.0")
    block(v0_9_0=None, v1_0_0=WHY, v1_1_0=WHY, v1_2_0=WHY)
    for call in (
        lambda: my_datasets.load(f"{NAME}:*.*.*", data_dir=tmp_path),
        lambda: my_datasets.source(f"{NAME}", data_dir=tmp_path),
    ):
        said = message(errors.VersionBlockedError, call)
        assert "Versions that are not blocked: none" in said
        assert "wait for a version that is not blocked" in said


def test_one_config_of_a_version_may_be_blocked(tmp_path):
    build(tmp_path, "1.0.0", cls=SeveralConfigs)
    SeveralConfigs(data_dir=tmp_path, version="1.0.0", config="big").download_and_prepare()
    SeveralConfigs(data_dir=tmp_path, version="1.1.0").download_and_prepare()
    name = SeveralConfigs.name
    assert loaded(f"{name}:1.*.*", tmp_path) == "1.1.0"
    assert my_datasets.source(f"{name}/small:1.*.*", data_dir=tmp_path).name.endswith(":1.1.0")
    with pytest.raises(errors.VersionBlockedError, match=r"Config big for version 1\.1\.0 is"):
        SeveralConfigs(data_dir=tmp_path, version="1.1.0", config="big").download_and_prepare()
    assert loaded(f"{name}/big:1.*.*", tmp_path) == "1.0.0"
    rows = json.loads(run("list", "--data-dir", tmp_path, "--json").stdout)["datasets"]
    (row,) = (row for row in rows if row["name"] == name)
    assert row["prepared"] == ["big/1.0.0", "small/1.0.0", "small/1.1.0"]


def test_a_lock_on_what_was_blocked_since_is_an_error(data_dir, tmp_path, block, monkeypatch):
    lock = tmp_path / "datasets.lock"
    reference = f"{NAME}:1.*.*"
    assert run("lock", reference, "--data-dir", data_dir, "--file", lock).exit_code == 0
    monkeypatch.setenv("MY_DATASETS_LOCK", str(lock))
    block(v1_1_0=WHY)
    for call in (
        lambda: my_datasets.load(reference, data_dir=data_dir),
        lambda: my_datasets.source(reference, data_dir=data_dir),
    ):
        said = message(errors.VersionBlockedError, call)
        assert f"It is locked by {lock}" in said
        assert f"my-datasets lock {reference}" in said
    check = run("lock", "--check", "--data-dir", data_dir, "--file", lock)
    assert isinstance(check.exception, errors.VersionBlockedError)
    assert run("lock", reference, "--data-dir", data_dir, "--file", lock).exit_code == 0
    assert loaded(reference, data_dir) == "1.0.0"


def test_prepared_data_may_say_of_themselves_that_they_are_blocked(data_dir, tmp_path):
    """As TFDS writes it, and with no code of the dataset at all."""
    shutil.copytree(data_dir / NAME, tmp_path / "of_strangers")
    for version in ("1.0.0", "1.1.0"):
        path = tmp_path / "of_strangers" / version / "dataset_info.json"
        info = {**json.loads(path.read_text()), "name": "of_strangers"}
        path.write_text(json.dumps({**info, "isBlocked": WHY} if version == "1.1.0" else info))
        for shard in path.parent.glob(f"{NAME}-*"):
            shard.rename(path.parent / shard.name.replace(NAME, "of_strangers"))
    assert loaded("of_strangers:1.*.*", tmp_path) == "1.0.0"
    assert my_datasets.source("of_strangers", data_dir=tmp_path).name == "of_strangers:1.0.0"
    for call in (
        lambda: my_datasets.load("of_strangers:1.1.0", data_dir=tmp_path),
        lambda: my_datasets.source("of_strangers:1.1.0", data_dir=tmp_path),
    ):
        assert WHY in message(errors.VersionBlockedError, call)
    rows = json.loads(run("list", "--data-dir", tmp_path, "--json").stdout)["datasets"]
    (row,) = (row for row in rows if row["name"] == "of_strangers")
    assert (row["prepared"], row["blocked"]) == (["1.0.0", "1.1.0"], {"1.1.0": WHY})
    shown = run("list", "--data-dir", tmp_path).stdout
    assert "1.1.0 (blocked)" in shown
    assert f"of_strangers:1.1.0 is blocked: {WHY}" in shown.replace("\n", " ")


def test_list_and_info_show_all_versions(data_dir):
    rows = json.loads(run("list", "--data-dir", data_dir, "--json").stdout)["datasets"]
    assert [row["prepared"] for row in rows if row["name"] == NAME] == [["1.0.0", "1.1.0"]]
    (penguins,) = (row for row in rows if row["name"] == "penguins_study")
    assert (penguins["version"], penguins["buildable"]) == ("1.1.0", ["1.1.0", "1.0.0"])
    for reference in (NAME, f"{NAME}:1.0.0"):
        info = json.loads(run("info", reference, "--data-dir", data_dir, "--json").stdout)
        assert info["versions"] == [
            {"version": version, "current": version == "1.2.0", "buildable": version != "0.9.0",
             "prepared": str(data_dir / NAME / version) if version[:3] in ("1.0", "1.1") else None,
             "blocked": None}
            for version in ("1.2.0", "1.1.0", "1.0.0", "0.9.0")
        ]  # fmt: skip
    shown = run("info", NAME, "--data-dir", data_dir).stdout
    assert "not prepared, not buildable by the current code" in shown
    assert "prepared, buildable" in shown


def test_stale_data_of_an_older_version_are_fixed_by_that_version(tmp_path, monkeypatch):
    from my_datasets.builders import code_fingerprint

    build(tmp_path, "1.0.0")
    monkeypatch.setattr(code_fingerprint, "sha256_of", lambda text: "another")
    said = message(errors.StaleDataError, lambda: build(tmp_path, "1.0.0"))
    assert f"my-datasets build {NAME}:1.0.0 --overwrite" in said


def test_a_builder_of_prepared_data_is_that_of_the_version(data_dir):
    assert find_builder(f"{NAME}:1.0.*", data_dir=data_dir).data_dir == str(
        data_dir / NAME / "1.0.0"
    )
