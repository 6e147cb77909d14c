"""The commands about stores, as scripts and people use them."""

import json

import pytest
from click.testing import CliRunner

from my_datasets import errors
from my_datasets.cli.main import cli
from my_datasets.core.manifest import Manifest
from tests.publishing import made
from tests.publishing.test_signing import keygen


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("to_publish")
    made.make(directory)
    made.make(directory, "1.0.1")
    return directory


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def run(*arguments, **how):
    return CliRunner().invoke(cli, [str(one) for one in arguments], **how)


def good(*arguments, **how):
    done = run(*arguments, **how)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def test_from_one_machine_to_another(data_dir, store, tmp_path):
    done = good(
        "publish", "released:1.0.0", "--to", store, "--data-dir", data_dir, "--note", "First."
    )
    digest = Manifest.read(data_dir / "released/1.0.0").content.digest
    assert "released:1.0.0 published (" in done.stdout
    assert f"digest {digest}" in done.stdout
    again = good("publish", "released:1.0.0", "--to", store, "--data-dir", data_dir, "--json")
    (said,) = json.loads(again.stdout)
    assert (said["outcome"], said["uploaded"], said["digest"]) == ("already published", 0, digest)
    here = tmp_path / "here"
    done = good("pull", "released:1.*.*", "--from", store, "--data-dir", here)
    assert f"downloaded, in {here}/released/1.0.0" in done.stdout
    (said,) = json.loads(
        good("pull", "released", "--from", store, "--data-dir", here, "--json").stdout
    )
    assert said["was_there"]
    assert "good" in good("verify", "released", "--data-dir", here).stdout


def test_the_store_may_be_named_by_the_environment(data_dir, store, tmp_path):
    where = {"MY_DATASETS_STORE": str(store), "TFDS_DATA_DIR": str(data_dir)}
    good("publish", "released:1.0.0", env=where)
    assert json.loads(good("ls", "--json", env=where).stdout)[0]["name"] == "released:1.0.0"
    assert run("ls").exit_code == 2


def test_some_splits_and_other_data(data_dir, store, tmp_path):
    good("publish", data_dir / "released/1.0.0", data_dir / "released/1.0.1", "--to", store)
    here = tmp_path / "here"
    done = good("pull", "released:1.0.0", "--from", store, "--data-dir", here, "--splits", "test")
    assert ", only test, in" in done.stdout
    done = good("pull", "released:1.0.1", "--from", store, "--data-dir", here)
    assert "from other versions" in done.stdout
    made.make(tmp_path / "mine", salt="mine")
    pull = ("pull", "released:1.0.0", "--from", store, "--data-dir", tmp_path / "mine")
    assert isinstance(run(*pull).exception, errors.OverwriteError)
    good(*pull, "--overwrite")


def test_what_happened(data_dir, store):
    publish = ("publish", "released:1.0.0", "--to", store, "--data-dir", data_dir)
    assert "would be published" in good(*publish, "--dry-run").stdout
    assert not store.exists()
    good(*publish)
    yank = ("yank", "released:1.0.0", "--from", store)
    assert run(*yank).exit_code == run(*yank, "-m", "x", "--undo").exit_code == 2
    assert "released:1.0.0 is yanked: Wrong." in good(*yank, "-m", "Wrong.").stdout
    assert "yanked: Wrong." in good("ls", "released", "--from", store).stdout
    assert isinstance(run("pull", "released", "--from", store).exception, errors.YankedError)
    gc = ("gc", "--from", store)
    assert "Nothing is there" in good(*gc).stdout
    assert "to be deleted with --delete" in good(*gc, "--yanked").stdout
    said = json.loads(good(*yank, "--undo", "--json").stdout)
    assert said["state"] == "published"
    log = json.loads(good("history", "released", "--from", store, "--json").stdout)
    actions = [event["action"] for event in log]
    assert actions == ["publish", "placed", "yank", "unyank"]
    assert "yank 1.0.0: Wrong." in good("history", "released", "--from", store).stdout
    good(*yank, "-m", "Wrong.")
    said = json.loads(good(*gc, "--yanked", "--delete", "--json").stdout)
    assert (said["deleted"], len(said["garbage"])) == (True, 1)
    assert "deleted: Wrong." in good("ls", "--from", store).stdout


def test_signatures(data_dir, store, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    key, other = keygen(tmp_path / "key"), keygen(tmp_path / "other")
    publish = ("publish", "released:1.0.0", "--to", store, "--data-dir", data_dir)
    good(*publish)
    assert run("sign", "--to", store).exit_code == 2
    done = good("sign", "--to", store, "--sign-key", key, "--require")
    assert "released:1.0.0 is signed by SHA256:" in done.stdout
    assert "takes only what is signed" in done.stdout
    pull = ("pull", "released", "--from", store, "--data-dir", tmp_path / "here")
    for wrong in ((), ("--trusted-keys", f"{other}.pub")):
        assert isinstance(run(*pull, *wrong).exception, errors.SignatureError)
    good(*pull, "--trusted-keys", f"{key}.pub")
    more = ("publish", "released:1.0.1", "--to", store, "--data-dir", data_dir)
    assert isinstance(run(*more).exception, errors.SignatureError)
    good(*more, "--sign-key", key)
    said = json.loads(good("sign", "--to", store, "--sign-key", key, "--json").stdout)
    assert said["requires_signatures"]
    good(*pull, env={"MY_DATASETS_TRUSTED_KEYS": f"{key}.pub"})
