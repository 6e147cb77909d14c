"""Whose word counts: keys that are named once, stores that have a name, signatures that expire."""

import json
import shutil
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

import my_datasets
from my_datasets.catalog.releases import collect
from my_datasets.cli.main import cli
from my_datasets.errors import (
    DataDirError,
    InvalidOptionError,
    LockError,
    SignatureError,
    StoreUnavailableError,
    YankedError,
)
from my_datasets.metadata.content import Content
from my_datasets.metadata.dataset_info import essentials
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing import admin
from my_datasets.publishing.catalog_client import INDEX_PURPOSE, STORE_PURPOSE, CatalogClient
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import sign_json
from my_datasets.publishing.model.signing import Signer, TrustedKeys
from my_datasets.publishing.model.trust import check_signed, require_signed
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import fetch, pull
from my_datasets.publishing.resolve_release import describe
from my_datasets.resolving.lock import Lock, TrustedKey
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.user_folders import settings_folder
from tests.publishing import forging
from tests.publishing.test_signing import keygen

DAY = 24 * 3600


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The files of three private keys; the public ones beside them."""
    directory = tmp_path_factory.mktemp("keys")
    return {name: keygen(directory / name) for name in ("alice", "bob", "mallory")}


@pytest.fixture
def signers(keys):
    return {name: Signer.read(path) for name, path in keys.items()}


@pytest.fixture
def trusted(keys):
    """What trusts some of them only."""

    def of(*names):
        lines = [keys[name].with_suffix(".pub").read_text() for name in names]
        return TrustedKeys.of(lines, "here")

    return of


@pytest.fixture
def memory(tmp_path):
    return RollbackState(tmp_path / "memory")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A working directory, state and settings of each test's own."""
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MY_DATASETS_LOCK", raising=False)
    monkeypatch.delenv("MY_DATASETS_TRUSTED_KEYS", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def store(tmp_path, built, signers):
    """A store with a release that Alice signed; it takes also what nobody signed."""
    publish(str(built()), tmp_path / "store", signer=signers["alice"])
    return tmp_path / "store"


def ledger(store, **options):
    return CatalogClient(RetryingStore(open_store(store)), **options)


def index_of(store):
    return store / "my-datasets" / "index" / "released.json"


def list_of(store):
    return store / "my-datasets" / "store.json"


def rewritten(path, signer=None, **changes):
    """Changes a document of a store, as whoever may write to it can; they sign it, if at all."""
    value = json.loads(path.read_bytes())
    value.pop("signatures")
    for name, one in changes.items():
        if one is None:
            value.pop(name)
        else:
            value[name] = one
    purpose = STORE_PURPOSE if path.name == "store.json" else INDEX_PURPOSE
    path.write_bytes(sign_json(value, purpose, signer))


def run(*arguments, **environment):
    return CliRunner().invoke(cli, [str(one) for one in arguments], env=environment)


# Without keys.


@pytest.mark.parametrize("is_garbage", [False, True])
def test_signatures_that_nobody_checks_are_reported(store, tmp_path, caplog, is_garbage):
    if is_garbage:
        whole = json.loads(index_of(store).read_bytes())
        whole["signatures"][0]["value"] = "garbage"
        index_of(store).write_text(json.dumps(whole))
    pull("released", store, tmp_path / "here")
    assert "which were not checked, because no trusted keys are configured" in caplog.text
    assert "my-datasets lock --trust FILE" in caplog.text
    assert ("(malformed)" in caplog.text) is is_garbage


def test_signatures_that_are_gone_are_reported(store, tmp_path, caplog):
    pull("released", store, tmp_path / "here")
    rewritten(index_of(store))
    caplog.clear()
    pull("released", store, tmp_path / "here")
    assert "The index of released" in caplog.text
    assert "is not signed now" in caplog.text
    rewritten(list_of(store))
    caplog.clear()
    pull("released", store, tmp_path / "there")
    assert "The store in" in caplog.text


def test_a_store_that_required_signatures_cannot_stop_to_unnoticed(
    store, tmp_path, signers, trusted
):
    admin.require_signatures(ledger(store, signer=signers["alice"]), required=True)
    saved = {path: path.read_bytes() for path in (list_of(store), index_of(store))}
    with pytest.raises(SignatureError, match="no trusted keys are configured"):
        pull("released", store, tmp_path / "here")
    rewritten(list_of(store), requires_signatures=False)
    rewritten(index_of(store))
    with pytest.raises(SignatureError, match="no longer requires signatures"):
        pull("released", store, tmp_path / "here")
    # Who saw it with keys has seen it as well.
    for path, data in saved.items():
        path.write_bytes(data)
    other = RollbackState(tmp_path / "other")
    pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=other)
    rewritten(list_of(store), requires_signatures=False)
    with pytest.raises(SignatureError, match="no longer requires signatures"):
        pull("released", store, tmp_path / "here", memory=other)


def test_nothing_is_reported_of_a_store_that_nobody_signs(tmp_path, built, caplog):
    publish(str(built()), tmp_path / "store")
    pull("released", tmp_path / "store", tmp_path / "here")
    assert not caplog.records


def test_a_user_without_a_home_has_no_settings(store, tmp_path, monkeypatch, trusted):
    for name in ("MY_DATASETS_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "nowhere")
    assert len(admin.releases(ledger(store))) == 1
    with pytest.raises(DataDirError, match="has no home folder"):
        admin.releases(ledger(store, keys=trusted("alice")))


# Keys that are named once.

VERBS = {
    "pull": lambda s, d: my_datasets.pull("released", s, d),
    "load": lambda s, d: my_datasets.load("released", store=s, data_dir=d),
    "stream": lambda s, d: my_datasets.load(
        "released", store=s, data_dir=d, stream=True, cache_dir=d / "cache"
    ),
    "attach": lambda s, d: my_datasets.attach("released", s, d / "cache"),
    "describe": lambda s, d: describe("released", s),
    "collect": lambda s, d: collect(str(s)),
    "ls": lambda s, d: raising(run("ls", "--from", s)),
    "info": lambda s, d: raising(run("info", "released", "--from", s)),
    "history": lambda s, d: raising(run("history", "released", "--from", s)),
    "catalog": lambda s, d: raising(run("catalog", "--from", s, "--to", d / "site")),
    "pull (command)": lambda s, d: raising(
        run("pull", "released", "--from", s, "--data-dir", d, "--no-lock")
    ),
    "verify": lambda s, d: raising(run("verify", "released", "--from", s)),
}


def raising(done):
    if done.exception is not None:
        raise done.exception


@pytest.mark.parametrize("place", ["lock", "settings", "lock for every store", "relative"])
def test_keys_that_are_named_once_hold_for_every_verb(
    place, store, tmp_path, keys, trusted, project, signers
):
    (line,) = trusted("alice").lines
    if place == "lock":
        done = run("lock", "--trust", keys["alice"].with_suffix(".pub"), "--from", store)
        assert done.exit_code == 0, done.output
        (entry,) = Lock.find().trusted_keys
        settings = json.loads(list_of(store).read_bytes())
        assert entry == TrustedKey(line, str(store), settings["store"])
    elif place == "settings":
        path = settings_folder("settings.toml")
        path.parent.mkdir(parents=True)
        path.write_text(f'[[trusted_keys]]\nkey = "{line} a comment"\nstore = "{store}/"\n')
    elif place == "relative":
        Lock(project / "datasets.lock", {}, (TrustedKey(line, "../store"),)).write()
    else:
        assert run("lock", "--trust", keys["alice"].with_suffix(".pub")).exit_code == 0
    for name, verb in VERBS.items():
        verb(store, tmp_path / "good" / name.partition(" ")[0])
    for path in (list_of(store), index_of(store)):
        rewritten(path, signers["mallory"])
    for name, verb in VERBS.items():
        with pytest.raises(SignatureError, match="not signed by a trusted key"):
            verb(store, tmp_path / "bad" / name.partition(" ")[0])


def test_which_keys_come_first(store, tmp_path, trusted, signers, project):
    """An argument, then the lock, then the settings; for the store, then for every store."""
    alice, mallory = trusted("alice").lines + trusted("mallory").lines
    path = settings_folder("settings.toml")
    path.parent.mkdir(parents=True)
    path.write_text(f'[[trusted_keys]]\nkey = "{mallory}"\n')

    def reads(**options):
        return admin.releases(ledger(store, memory=RollbackState(tmp_path / "none"), **options))

    with pytest.raises(SignatureError):
        reads()
    assert reads(keys=trusted("alice"))
    Lock(project / "datasets.lock", {}, (TrustedKey(alice),)).write()
    assert reads()
    Lock(
        project / "datasets.lock", {}, (TrustedKey(alice), TrustedKey(mallory, str(store)))
    ).write()
    with pytest.raises(SignatureError):
        reads()
    Lock(
        project / "datasets.lock", {}, (TrustedKey(mallory), TrustedKey(alice, str(store)))
    ).write()
    assert reads()
    Lock(project / "datasets.lock", {}, (TrustedKey(alice, "/elsewhere"),)).write()
    with pytest.raises(SignatureError):  # the settings' key, for every store
        reads()


@pytest.mark.parametrize(
    "text", ["x", "trusted_keys = 1", "[[trusted_keys]]\nstore = 'x'", "[[trusted_keys]]\nkey = 1",
             "[[trusted_keys]]\nkey = 'x'\nstor = 'y'"],
)  # fmt: skip
def test_settings_that_cannot_be_read(text, store, tmp_path):
    path = settings_folder("settings.toml")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InvalidOptionError, match=r"settings\.toml cannot be read"):
        pull("released", store, tmp_path / "here")


def test_keys_stay_in_a_lock_whose_references_change(tmp_path, built, keys, trusted):
    assert run("lock", "--trust", keys["alice"].with_suffix(".pub")).exit_code == 0
    done = run("lock", "released:1.0.*", "--data-dir", built().parents[1])
    assert done.exit_code == 0, done.output
    lock = Lock.find()
    assert set(lock.datasets) == {"released:1.0.*"}
    assert [one.key for one in lock.trusted_keys] == trusted("alice").lines
    Lock.find().path.write_text(json.dumps({"format": 2, "datasets": {}, "trusted_keys": [1]}))
    with pytest.raises(LockError):
        Lock.find()


# Signatures that stay with what was pulled.


def test_a_pulled_version_can_be_checked_offline(store, tmp_path, keys, built):
    version = pull("released", store, tmp_path / "here").path
    shutil.rmtree(store)
    public = keys["alice"].with_suffix(".pub")
    done = run("verify", version, "--trusted-keys", public, "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    assert report["signed_by"] == Signer.read(keys["alice"]).fingerprint
    assert "signed by SHA256:" in run("verify", version, "--trusted-keys", public).stdout
    done = run("verify", version, "--trusted-keys", keys["mallory"].with_suffix(".pub"))
    assert done.exit_code == 1
    assert "[wrong-signature]" in done.stdout
    done = run("verify", built(), "--trusted-keys", public)
    assert (done.exit_code, "[not-signed]" in done.stdout) == (1, True)
    # The environment names keys for stores; what was built here was never in one.
    done = run("verify", built(), MY_DATASETS_TRUSTED_KEYS=str(public))
    assert done.exit_code == 0, done.output
    # What is published again is the version, not who signed it elsewhere.
    assert record.SIGNATURES not in {one.name for one in Record.of(version).files}


def test_plain_verify_says_what_it_did_not_check(store, tmp_path):
    version = pull("released", store, tmp_path / "here").path
    assert (
        "bytes match the manifest; its signature was not checked" in run("verify", version).stdout
    )
    assert (
        "metadata and sizes match the manifest; its signature was not checked"
        in run("verify", version, "--fast").stdout
    )


@pytest.mark.parametrize(
    "name",
    ["features.json", "dataset_info.json", "my_datasets_manifest.json", "my_datasets_release.json",
     "my_datasets_release_signatures.json", "released-train.tfrecord-00000-of-00004"],
)  # fmt: skip
def test_what_was_altered_after_it_was_signed_is_found(name, store, tmp_path, keys, trusted):
    version = pull("released", store, tmp_path / "here").path
    path = version / name
    data = bytearray(path.read_bytes())
    at = data.index(b'"value": "') + 12 if "signatures" in name else len(data) // 2
    data[at] ^= 1
    path.write_bytes(data)
    done = run("verify", version, "--trusted-keys", keys["alice"].with_suffix(".pub"))
    assert done.exit_code == 1
    assert check_signed(version, trusted("alice")).signed_by is None


def test_shards_that_the_record_does_not_name_are_not_signed(store, tmp_path, built, trusted):
    """The manifest and the shards are another version's, all of them right by themselves."""
    version = pull("released", store, tmp_path / "here").path
    other = built("2.0.0")
    for path in other.iterdir():
        if path.is_file():
            shutil.copy(path, version / path.name)
    found = check_signed(version, trusted("alice"))
    assert found.signed_by is None
    nodes = {issue.node for issue in found.issues}
    assert "released-train.tfrecord-00000-of-00004" in nodes
    (version / "more.labels.txt").write_text("a\n")
    assert "more.labels.txt" in {one.node for one in check_signed(version, trusted("alice")).issues}


def test_a_part_of_a_release_is_signed_where_this_machine_made_it(store, tmp_path, trusted):
    version = pull("released", store, tmp_path / "here", splits=["test"]).path
    assert check_signed(version, trusted("alice")).signed_by
    (version / "features.json").write_text("{}")
    assert check_signed(version, trusted("alice")).signed_by is None


def as_part(version, **changes):
    """Seals a version as one that has some splits of its release, as an attacker can."""
    made = Manifest.read(version)
    replace(
        made, options={**made.options, "splits": list(made.content.splits)},
        metadata=essentials(version), **changes,
    ).write(version)  # fmt: skip


def with_other_input(version):
    path = version / "dataset_info.json"
    info = json.loads(path.read_text())
    info["description"] = "other"
    path.write_text(json.dumps(info))
    as_part(version)


def with_exchanged_splits(version):
    path = version / "dataset_info.json"
    info = json.loads(path.read_text())
    other = {"train": "test", "test": "train"}
    for one in info["splits"]:
        one["name"] = other[one["name"]]
    path.write_text(json.dumps(info))
    content = Manifest.read(version).content
    splits = {name: content.splits[other[name]] for name in content.splits}
    as_part(version, content=Content(content.schema, splits))


@pytest.mark.parametrize("forge", [as_part, with_other_input, with_exchanged_splits])
def test_a_release_is_no_part_because_its_manifest_says_so(forge, store, tmp_path, trusted, keys):
    here = tmp_path / "here"
    version = pull("released", store, here).path
    forge(version)
    with pytest.raises(SignatureError, match="was not written by this machine"):
        my_datasets.load(
            "released", store=store, data_dir=here, download=False, keys=trusted("alice")
        )
    public = keys["alice"].with_suffix(".pub")
    done = run("verify", version, "--trusted-keys", public, "--json")
    assert (done.exit_code, json.loads(done.stdout)[0]["signed_by"]) == (1, None)


def test_a_part_lacks_nothing_but_shards(tmp_path, trusted, signers):
    publish(str(forging.make(tmp_path / "orig")), tmp_path / "other", signer=signers["alice"])
    version = pull("labelled", tmp_path / "other", tmp_path / "here", splits=["test"]).path
    assert check_signed(version, trusted("alice")).signed_by
    (version / "label.labels.txt").unlink()
    assert check_signed(version, trusted("alice")).signed_by is None


@pytest.mark.parametrize("place", ["released/2.0.0", "other/1.0.0", "released/config/1.0.0"])
def test_what_was_signed_under_another_name_is_refused(place, store, tmp_path, trusted):
    version = pull("released", store, tmp_path / "here").path
    shutil.copytree(version, tmp_path / "there" / place)
    found = check_signed(tmp_path / "there" / place, trusted("alice"))
    assert [issue.code for issue in found.issues] == ["other-name"]
    assert found.signed_by is None
    if place == "other/1.0.0":
        with pytest.raises(SignatureError, match="The signature is for another dataset or version"):
            fetch("other", Silent(store), tmp_path / "there", keys=trusted("alice"))


@pytest.mark.parametrize("is_down", [True, False])
def test_forged_shards_under_signed_metadata_are_refused(is_down, store, tmp_path, trusted):
    """Bytes of the same size, in a directory that came from elsewhere."""
    there, here = tmp_path / "there", tmp_path / "here"
    pull("released", store, there)
    shutil.copytree(there, here)
    shard = here / "released" / "1.0.0" / "released-train.tfrecord-00000-of-00004"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    alice = trusted("alice")

    def read():
        if is_down:
            return fetch("released", Silent(store), here, keys=alice, patience=RetryPolicy(tries=1))
        options = {"store": store, "data_dir": here, "download": False, "keys": alice}
        return my_datasets.load("released", **options)

    with pytest.raises(SignatureError, match=shard.name):
        read()


class Silent(LocalStore):
    def state(self, path, most):
        raise StoreUnavailableError("silent")


def test_what_is_here_must_be_signed_where_keys_are_named(store, tmp_path, trusted, built):
    here = tmp_path / "here"
    alice, mallory = trusted("alice"), trusted("mallory")
    pull("released", store, here)
    silent = Silent(store)
    no_patience = RetryPolicy(tries=1)
    assert fetch("released", silent, here, keys=alice, patience=no_patience).is_dir()
    options = {"store": store, "data_dir": here, "download": False}
    my_datasets.load("released", keys=alice, **options)
    with pytest.raises(SignatureError, match="not a release signed by a trusted key"):
        fetch("released", silent, here, keys=mallory, patience=no_patience)
    with pytest.raises(SignatureError):
        my_datasets.load("released", keys=mallory, **options)
    with pytest.raises(SignatureError, match="no signed record"):
        require_signed(built(), alice)


# Stores that have a name.


@pytest.fixture
def staging(tmp_path, built, signers):
    """Another store of the same publisher, of which the index has a higher serial."""
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        publish(str(built(version)), tmp_path / "staging", signer=signers["alice"])
    return tmp_path / "staging"


def test_an_index_of_another_store_is_refused(store, staging, tmp_path, signers, trusted, memory):
    alice = trusted("alice")
    admin.yank(ledger(store, signer=signers["alice"], keys=alice), "released:1.0.0", "wrong")
    with pytest.raises(YankedError):
        pull("released", store, tmp_path / "here", keys=alice, memory=memory)
    shutil.copy(index_of(staging), index_of(store))
    for seen in (memory, RollbackState(tmp_path / "fresh")):
        with pytest.raises(SignatureError, match="is signed for another store"):
            pull("released:1.0.0", store, tmp_path / "here", keys=alice, memory=seen)
    # With the list of datasets, too, it is another store at the same address.
    shutil.copy(list_of(staging), list_of(store))
    with pytest.raises(SignatureError, match="is not the store that you trust"):
        pull("released:1.0.0", store, tmp_path / "here", keys=alice, memory=memory)


def test_a_store_whose_id_is_locked_cannot_be_another_one(store, staging, tmp_path, keys):
    """Also for who reads it for the first time."""
    public = keys["alice"].with_suffix(".pub")
    assert run("lock", "--trust", public, "--from", store).exit_code == 0
    shutil.rmtree(store)
    shutil.copytree(staging, store)
    fresh = RollbackState(tmp_path / "fresh")
    with pytest.raises(
        SignatureError, match=r"not the store that you trust(.|\n)*my-datasets lock --trust"
    ):
        pull("released", store, tmp_path / "here", memory=fresh)
    assert run("lock", "--trust", public, "--from", store).exit_code == 1  # seen before, too
    other = {"MY_DATASETS_HOME": str(tmp_path / "other_home")}
    assert run("lock", "--trust", public, "--from", store, **other).exit_code == 0
    pull("released", store, tmp_path / "here", memory=fresh)


OLD = {"store": None, "store_serial": None, "expires": None}


def test_stores_of_old_releases_are_read_and_can_be_renewed(
    store, staging, tmp_path, signers, trusted, caplog
):
    alice = signers["alice"]
    rewritten(index_of(store), alice, **OLD)
    rewritten(list_of(store), alice, **dict.fromkeys(
        ["names_store", "valid_seconds", "expires", "key_changes"]
    ))  # fmt: skip
    old = index_of(store).read_bytes()
    memory = RollbackState(tmp_path / "memory")
    pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=memory)
    assert "does not name its store" in caplog.text
    assert f"my-datasets sign --to {store}" in caplog.text
    admin.sign(ledger(store, signer=alice))
    caplog.clear()
    pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=memory)
    assert not caplog.records
    index_of(store).write_bytes(old)
    with pytest.raises(SignatureError, match=r"no store(.|\n)*signs everything again"):
        pull(
            "released",
            store,
            tmp_path / "here",
            keys=trusted("alice"),
            memory=RollbackState(tmp_path),
        )


def test_the_list_of_datasets_is_remembered_beside_the_indexes(
    store, tmp_path, signers, trusted, memory
):
    """What is noted of an index does not replace what is known of the list."""
    old = list_of(store).read_bytes()
    admin.require_signatures(ledger(store, signer=signers["alice"]), required=True)
    pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=memory)
    list_of(store).write_bytes(old)
    with pytest.raises(SignatureError, match="older state of store"):
        pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=memory)


def test_parts_of_different_times_do_not_go_together(store, tmp_path, signers, trusted, built):
    """For who has seen neither: the index says how old the list of datasets and keys may be."""
    old = list_of(store).read_bytes()
    alice = signers["alice"]
    admin.require_signatures(ledger(store, signer=alice), required=True)
    publish(str(built("1.1.0")), store, signer=alice)
    list_of(store).write_bytes(old)
    with pytest.raises(SignatureError, match="older state of its list of datasets and keys"):
        pull("released", store, tmp_path / "here", keys=trusted("alice"))


# Signatures that expire.


def test_an_index_that_has_expired_is_refused(store, tmp_path, signers, trusted, memory):
    alice, then = signers["alice"], time.time() - 40 * DAY
    admin.set_validity(ledger(store, signer=alice, clock=lambda: then), 30 * DAY)
    frozen = index_of(store).read_bytes()

    def reads(days):
        reader = ledger(
            store, keys=trusted("alice"), memory=memory, clock=lambda: then + days * DAY
        )
        return admin.releases(reader)

    assert reads(29)
    with pytest.raises(SignatureError, match=r"has expired(.|\n)*my-datasets sign --to"):
        reads(31)
    with pytest.raises(SignatureError, match="has expired"):
        pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=memory)
    # Who signs renews it: for as long as before.
    admin.sign(ledger(store, signer=alice))
    pull("released", store, tmp_path / "here", keys=trusted("alice"), memory=memory)
    assert reads(69)
    # The list alone says nothing of an index that is held back.
    index_of(store).write_bytes(frozen)
    with pytest.raises(SignatureError, match=r"The index of released .* has expired"):
        pull(
            "released",
            store,
            tmp_path / "new",
            keys=trusted("alice"),
            memory=RollbackState(tmp_path),
        )


def test_an_index_from_before_anything_expired_is_refused(store, tmp_path, signers, trusted, built):
    endless = index_of(store).read_bytes()
    publish(str(built("1.1.0")), store, signer=signers["alice"], valid_for=30 * DAY)
    assert json.loads(index_of(store).read_bytes())["expires"]
    pull("released:1.1.0", store, tmp_path / "here", keys=trusted("alice"))
    index_of(store).write_bytes(endless)
    with pytest.raises(SignatureError, match="has no expiry time"):
        pull(
            "released",
            store,
            tmp_path / "here",
            keys=trusted("alice"),
            memory=RollbackState(tmp_path),
        )


def test_publishing_renews_what_is_due(store, signers, built):
    alice, then = signers["alice"], time.time() - 20 * DAY
    admin.set_validity(ledger(store, signer=alice, clock=lambda: then), 30 * DAY)
    before = json.loads(list_of(store).read_bytes())["expires"]
    publish(str(built("1.1.0")), store, signer=alice)
    for path in (list_of(store), index_of(store)):
        assert json.loads(path.read_bytes())["expires"] > before


# Keys that change.


def test_a_key_that_a_trusted_key_added_counts(store, tmp_path, signers, trusted, built):
    """Also for who only knows the first one, and reads the store for the first time."""
    admin.add_key(ledger(store, signer=signers["alice"]), *trusted("bob").lines)
    alice = trusted("alice")
    publish(str(built("1.1.0")), store, signer=signers["bob"], keys=alice)
    admin.sign(ledger(store, signer=signers["bob"], keys=alice))
    fresh = RollbackState(tmp_path / "fresh")
    done = pull("released:1.1.0", store, tmp_path / "here", keys=alice, memory=fresh)
    assert check_signed(done.path, trusted("bob")).signed_by == signers["bob"].fingerprint


def test_who_is_not_trusted_adds_nobody(store, tmp_path, signers, trusted):
    mallory = signers["mallory"]
    admin.add_key(ledger(store, signer=mallory), *trusted("mallory").lines)
    admin.sign(ledger(store, signer=mallory))
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        pull("released", store, tmp_path / "here", keys=trusted("alice"))


def test_an_addition_counts_in_its_store_only(store, staging, tmp_path, signers, trusted, built):
    admin.add_key(ledger(staging, signer=signers["alice"]), *trusted("bob").lines)
    changes = json.loads(list_of(staging).read_bytes())["key_changes"]
    rewritten(list_of(store), signers["bob"], key_changes=changes)
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        pull("released", store, tmp_path / "here", keys=trusted("alice"))


@pytest.fixture
def rotated(store, signers, trusted):
    """A store in which Bob's key took the place of Alice's."""
    alice, bob = (trusted(name).lines[0] for name in ("alice", "bob"))
    admin.add_key(ledger(store, signer=signers["alice"]), bob)
    admin.revoke_key(ledger(store, signer=signers["bob"], keys=trusted("alice")), alice)
    return store


def test_who_signs_now_is_known_offline(rotated, tmp_path, signers, trusted, memory, built):
    """By what this machine saw of the store, and by nothing that the version says of itself."""
    alice, bob = trusted("alice"), signers["bob"].fingerprint
    done = pull("released", rotated, tmp_path / "here", keys=alice, memory=memory)
    assert check_signed(done.path, alice, memory).signed_by == bob
    require_signed(done.path, alice, memory, str(rotated))
    publish(str(built("2.0.0")), tmp_path / "bobs", signer=signers["bob"])
    other = pull("released", tmp_path / "bobs", tmp_path / "bobs_data", keys=trusted("bob"))
    for path, seen, url in (
        (done.path, memory, str(tmp_path / "bobs")),  # Alice added nobody there
        (other.path, memory, None),
        (other.path, memory, str(tmp_path / "bobs")),
    ):
        with pytest.raises(SignatureError, match="not a release signed by a trusted key"):
            require_signed(path, alice, seen, url)


@pytest.mark.parametrize("changes", [7, ["a key"], [{"key": 1}]])
def test_changes_of_keys_that_cannot_be_read_add_nobody(
    changes, rotated, tmp_path, trusted, memory
):
    done = pull("released", rotated, tmp_path / "here", keys=trusted("alice"), memory=memory)
    memory.note_facts(str(rotated), changes=changes)
    found = check_signed(done.path, trusted("alice"), memory)
    assert [issue.code for issue in found.issues] == ["wrong-signature"]
    assert check_signed(done.path, trusted("bob"), memory).signed_by


@pytest.mark.parametrize("is_down", [True, False])
def test_offline_the_store_that_is_asked_says_whose_keys_count(
    is_down, rotated, staging, tmp_path, trusted
):
    """The store that the version names does not: anybody may have written that name."""
    here, alice = tmp_path / "here", trusted("alice")
    pull("released", rotated, here, keys=alice)

    def read(store):
        if is_down:
            return fetch("released", Silent(store), here, keys=alice, patience=RetryPolicy(tries=1))
        options = {"store": store, "data_dir": here, "download": False, "keys": alice}
        return my_datasets.load("released", **options)

    read(rotated)
    with pytest.raises(SignatureError, match="not a release signed by a trusted key"):
        read(staging)


def test_a_revoked_key_does_not_count(rotated, tmp_path, signers, trusted, memory):
    alice = trusted("alice")
    saved = list_of(rotated).read_bytes(), index_of(rotated).read_bytes()
    # Who trusts the old key follows to the new one.
    done = pull("released", rotated, tmp_path / "here", keys=alice, memory=memory)
    pull(
        "released",
        rotated,
        tmp_path / "here",
        keys=trusted("bob"),
        memory=RollbackState(tmp_path / "b"),
    )
    # What the old key signs now.
    rewritten(index_of(rotated), signers["alice"])
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        pull(
            "released",
            rotated,
            tmp_path / "here",
            keys=alice,
            memory=RollbackState(tmp_path / "new"),
        )
    # It cannot take back the revocation, or add another key after it.
    value = json.loads(saved[0])
    for changes in ([], value["key_changes"][:1]):
        rewritten(
            list_of(rotated), signers["alice"], key_changes=changes, serial=value["serial"] + 9
        )
        with pytest.raises(SignatureError, match="lacks changes of keys that it had before"):
            pull("released", rotated, tmp_path / "here", keys=alice, memory=memory)
    list_of(rotated).write_bytes(saved[0])
    index_of(rotated).write_bytes(saved[1])
    attacker = ledger(rotated, signer=signers["alice"], memory=RollbackState(tmp_path / "attacker"))
    attacker._check_signer = lambda _: None  # an attacker's own program signs all the same
    admin.add_key(attacker, *trusted("mallory").lines)
    rewritten(list_of(rotated), signers["mallory"])
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        pull("released", rotated, tmp_path / "here", keys=alice, memory=memory)
    # Offline, too, this machine knows of it.
    (tmp_path / "elsewhere").mkdir()
    assert check_signed(done.path, trusted("bob"), memory).signed_by
    assert check_signed(done.path, alice, memory).signed_by == signers["bob"].fingerprint
    found = check_signed(done.path, alice, memory, "a store where Alice added nobody")
    assert [issue.code for issue in found.issues] == ["wrong-signature"]
    assert "revoked" in found.issues[0].found


@pytest.mark.parametrize("names_keys", [True, False])
def test_a_revoked_key_signs_nothing_more(rotated, signers, trusted, names_keys):
    saved = list_of(rotated).read_bytes(), index_of(rotated).read_bytes()
    keys = trusted("alice") if names_keys else None
    attempts = (
        admin.sign,
        lambda by: admin.yank(by, "released:1.0.0", "bad"),
        lambda by: by.set(valid_seconds=9),
        lambda by: admin.add_key(by, *trusted("mallory").lines),
    )
    for attempt in attempts:
        with pytest.raises(SignatureError, match=r"was revoked for (.|\n)*--sign-key NEW"):
            attempt(ledger(rotated, signer=signers["alice"], keys=keys))
    assert (list_of(rotated).read_bytes(), index_of(rotated).read_bytes()) == saved
    admin.sign(ledger(rotated, signer=signers["bob"], keys=trusted("alice")))


def test_a_key_does_not_revoke_itself(store, signers, trusted):
    with pytest.raises(SignatureError, match="cannot revoke itself"):
        admin.revoke_key(ledger(store, signer=signers["alice"]), *trusted("alice").lines)


def test_rotation_and_expiry_by_the_command_line(store, tmp_path, keys, signers):
    alice, bob = keys["alice"], keys["bob"]
    to = ["--to", store, "--sign-key"]
    for arguments in (
        [*to, alice, "--add-key", bob.with_suffix(".pub"), "--valid-for", "30d"],
        [*to, bob, "--revoke-key", alice.with_suffix(".pub"), "--trusted-keys",
         alice.with_suffix(".pub")],
    ):  # fmt: skip
        done = run("sign", *arguments)
        assert done.exit_code == 0, (done.output, done.exception)
        assert "Signatures there expire on" in done.stdout
    done = run("ls", "--from", store, "--trusted-keys", bob.with_suffix(".pub"), "--json")
    (release,) = json.loads(done.stdout)
    assert signers["bob"].fingerprint in [one["key"] for one in release["signatures"]]
    done = run("sign", *to, alice, "--valid-for", "soon")
    assert (done.exit_code, "use hours, days or weeks" in done.output) == (2, True)
