"""The commands about stores, as scripts and people use them."""

import json

import pytest
from click.testing import CliRunner

from my_datasets import errors
from my_datasets.cli.main import cli
from my_datasets.metadata.manifest import Manifest
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
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    key, other = keygen(tmp_path / "key"), keygen(tmp_path / "other")
    publish = ("publish", "released:1.0.0", "--to", store, "--data-dir", data_dir)
    good(*publish)
    assert run("sign", "--to", store).exit_code == 2
    done = good("sign", "--to", store, "--sign-key", key, "--require")
    assert "released:1.0.0 is signed by SHA256:" in done.stdout
    assert "requires signatures" in done.stdout
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


def test_what_is_known_before_a_pull(data_dir, store, tmp_path):
    for version in ("1.0.0", "1.0.1"):
        good("publish", f"released:{version}", "--to", store, "--data-dir", data_dir)
    good("yank", "released:1.0.1", "--from", store, "-m", "labels are wrong")
    digest = Manifest.read(data_dir / "released/1.0.0").content.digest
    said = json.loads(good("info", "released", "--from", store, "--json").stdout)
    assert (said["name"], said["digest"], said["state"]) == ("released:1.0.0", digest, "published")
    assert said["splits"]["test"]["examples"] == 10
    shards = (data_dir / "released/1.0.0").glob("*-train.tfrecord-?????-of-00004")
    assert said["splits"]["train"] == {
        "examples": made.ROWS, "shards": 4, "bytes": sum(one.stat().st_size for one in shards)
    }  # fmt: skip
    assert [one["name"] for one in said["features"]] == ["noise", "number"]
    assert [(one["version"], one["message"]) for one in said["versions"]] == [
        ("1.0.0", ""), ("1.0.1", "labels are wrong")
    ]  # fmt: skip
    assert (said["signed_by"], said["is_trusted"]) == ([], False)
    text = good("info", "released:1.*.*", "--from", store).stdout
    for one in ("released:1.0.0", digest, "60 examples in 4 shard(s)", "feature number",
                "yanked", "labels are wrong", "To bring it here: my-datasets pull"):  # fmt: skip
        assert one in " ".join(text.split()), one
    assert isinstance(
        run("info", "released:1.0.1", "--from", store).exception, errors.YankedError
    )  # fmt: skip
    assert run("info", "released", "--from", store, "--data-dir", data_dir).exit_code == 2


def test_whose_signature_it_is(data_dir, store, tmp_path):
    key = keygen(tmp_path / "key")
    good("publish", "released:1.0.0", "--to", store, "--data-dir", data_dir, "--sign-key", key)
    untold = json.loads(good("info", "released", "--from", store, "--json").stdout)
    trusted = ("--trusted-keys", key.with_suffix(".pub"))
    told = json.loads(good("info", "released", "--from", store, *trusted, "--json").stdout)
    assert told["signed_by"] == untold["signed_by"] != []
    assert (told["is_trusted"], untold["is_trusted"]) == (True, False)
    text = good("info", "released", "--from", store).stdout
    assert ", not checked: see --trusted-keys" in " ".join(text.split())
    other = keygen(tmp_path / "other").with_suffix(".pub")
    done = run("info", "released", "--from", store, "--trusted-keys", other)
    assert isinstance(done.exception, errors.SignatureError)
