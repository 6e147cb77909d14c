"""Who published what: OpenSSH agrees, and nothing else is taken."""

import base64
import hashlib
import json
import subprocess

import pytest

from my_datasets.errors import CorruptReleaseError, SignatureError
from my_datasets.publishing import admin
from my_datasets.publishing.catalog_client import RELEASE_PURPOSE, CatalogClient
from my_datasets.publishing.model import record
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signing import Signer, TrustedKeys
from my_datasets.publishing.model.store_layout import claim
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.puller import pull
from my_datasets.publishing.upload import Outcome
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore
from tests import programs


def keygen(path, *options, password=""):
    subprocess.run(
        [programs.require("ssh-keygen", "OpenSSH"), "-q", "-t", "ed25519", "-N", password,
         "-C", "a comment", "-f", path, *options],
        check=True,
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two private keys in files, made by OpenSSH; the public ones beside them."""
    directory = tmp_path_factory.mktemp("keys")
    return [keygen(directory / name) for name in ("alice", "mallory")]


@pytest.fixture
def alice(keys):
    return Signer.read(keys[0])


@pytest.fixture
def mallory(keys):
    return Signer.read(keys[1])


@pytest.fixture
def trusted(keys):
    return TrustedKeys.read(keys[0].with_suffix(".pub"))


@pytest.fixture
def memory(tmp_path):
    return RollbackState(tmp_path / "memory")


@pytest.fixture
def signed(tmp_path, built, alice):
    """A store that requires signatures, with two releases of Alice's."""
    store = tmp_path / "store"
    admin.require_signatures(
        CatalogClient(RetryingStore(open_store(store)), signer=alice), required=True
    )
    for version in ("1.0.0", "1.1.0"):
        publish(str(built(version)), store, signer=alice)
    return store


def index_of(store):
    return store / "my-datasets" / "index" / "released.json"


def test_openssh_verifies_what_we_sign(keys, alice, tmp_path):
    """And the fingerprints are those that it shows."""
    message = claim("released", "1.0.0", "0" * 64)
    signature = alice.sign(RELEASE_PURPOSE, message)

    def text(data):
        return len(data).to_bytes(4, "big") + data

    public = base64.b64decode(keys[0].with_suffix(".pub").read_text().split()[1])
    value = text(b"ssh-ed25519") + text(base64.b64decode(signature.value))
    blob = (b"SSHSIG" + (1).to_bytes(4, "big") + text(public) + text(RELEASE_PURPOSE.encode())
            + text(b"") + text(b"sha512") + text(value))  # fmt: skip
    armored = base64.encodebytes(blob).decode()
    (tmp_path / "sig").write_text(
        f"-----BEGIN SSH SIGNATURE-----\n{armored}-----END SSH SIGNATURE-----\n"
    )
    (tmp_path / "signers").write_text(f"alice {keys[0].with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", tmp_path / "signers", "-I", "alice", "-s",
              tmp_path / "sig", "-n"]  # fmt: skip
    for purpose, data, good in [
        (RELEASE_PURPOSE, message, True), ("other", message, False),
        (RELEASE_PURPOSE, message + b" ", False),
    ]:  # fmt: skip
        done = subprocess.run([*verify, purpose], input=data, capture_output=True)
        assert (done.returncode == 0) is good, done.stderr
    shown = subprocess.run(["ssh-keygen", "-l", "-f", keys[0]], capture_output=True, text=True)
    assert alice.fingerprint == shown.stdout.split()[1]


def test_keys_of_all_forms(tmp_path, keys, alice):
    from cryptography.hazmat.primitives import serialization

    pem = tmp_path / "pem"
    private = serialization.load_ssh_private_key(keys[0].read_bytes(), None)
    pem.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )  # fmt: skip
    assert Signer.read(pem).fingerprint == alice.fingerprint
    encrypted = keygen(tmp_path / "encrypted", password="secret!")
    with pytest.raises(SignatureError, match="it is encrypted"):
        Signer.read(encrypted)
    with pytest.raises(SignatureError, match="the password is wrong") as caught:
        Signer.read(encrypted, b"wrong!")
    assert "wrong!" not in str(caught.value)
    Signer.read(encrypted, b"secret!")
    rsa = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", rsa], check=True)
    with pytest.raises(SignatureError, match="of the type RSAPrivateKey"):
        Signer.read(rsa)
    for path, match in [
        (rsa.with_suffix(".pub"), "not a private key"),
        (tmp_path / "no", "No such file"),
    ]:
        with pytest.raises(SignatureError, match=match):
            Signer.read(path)
    line = keys[0].with_suffix(".pub").read_text()
    for text in (line, f"# ours\n\nalice@example.org {line}", f"restrict,no-pty {line}"):
        (tmp_path / "trusted").write_text(text)
        assert TrustedKeys.read(tmp_path / "trusted").fingerprints == [alice.fingerprint]
    for text, match in [
        ("", "it has no key"), (f"{line}\nnonsense", "line 3 is not an Ed25519 key"),
        (rsa.with_suffix(".pub").read_text(), "line 1 is no"),
        ("ssh-ed25519 AAAA", "line 1 is no"),
    ]:  # fmt: skip
        (tmp_path / "trusted").write_text(text)
        with pytest.raises(SignatureError, match=match):
            TrustedKeys.read(tmp_path / "trusted")


def test_who_signed_is_trusted(signed, trusted, tmp_path, memory):
    done = pull("released:1.0.0", signed, tmp_path / "here", keys=trusted, memory=memory)
    assert done.path.is_dir()
    with pytest.raises(SignatureError, match="no trusted keys are configured"):
        pull("released:1.1.0", signed, tmp_path / "here", memory=memory)


def test_unsigned_is_refused(tmp_path, built, trusted, alice, signed, memory):
    publish(str(built()), tmp_path / "unsigned")
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        pull("released", tmp_path / "unsigned", tmp_path / "here", keys=trusted, memory=memory)
    with pytest.raises(SignatureError, match="no trusted keys are configured"):
        publish(str(built("2.0.0")), signed)
    with pytest.raises(SignatureError, match="requires signatures"):
        publish(str(built("2.0.0")), signed, keys=trusted, memory=memory)
    whole = json.loads(index_of(signed).read_bytes())
    index_of(signed).write_text(json.dumps({**whole, "signatures": []}))
    with pytest.raises(SignatureError, match="signed by no key"):
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory)


def test_wrongly_signed_is_refused(tmp_path, built, trusted, mallory, alice, signed, memory):
    store = tmp_path / "of_mallory"
    publish(str(built()), store, signer=mallory)
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        pull("released", store, tmp_path / "here", keys=trusted, memory=memory)
    with pytest.raises(SignatureError, match="not signed by a trusted key"):
        publish(str(built("2.0.0")), signed, signer=mallory)
    # Under Alice's name.
    whole = json.loads(index_of(signed).read_bytes())
    for one in whole["signatures"]:
        one["value"] = base64.b64encode(bytes(64)).decode()
    index_of(signed).write_text(json.dumps(whole))
    with pytest.raises(SignatureError, match="was altered"):
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory)


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["releases"]["1.0.0"].update(record="0" * 64),
        lambda index: index["releases"].pop("1.1.0"),
        lambda index: index["releases"]["1.1.0"].update(message="no", state="yanked"),
        lambda index: index.update(serial=99),
        lambda index: index["log"].pop(),
        lambda index: index["releases"].update({"3.0.0": index["releases"]["1.0.0"]}),
    ],
    ids=["record", "hidden", "yanked", "serial", "log", "other_version"],
)
def test_what_was_altered_is_refused(signed, trusted, tmp_path, change, memory):
    whole = json.loads(index_of(signed).read_bytes())
    change(whole)
    index_of(signed).write_text(json.dumps(whole))
    with pytest.raises(SignatureError, match="was altered"):
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory)


def test_other_bytes_with_a_record_that_fits_them_are_refused(signed, trusted, tmp_path, memory):
    """The index is signed, and names the record; nothing else says what a release is."""
    folder = signed / "released" / "1.0.0"
    shard = next(folder.glob("*train*-00001-of-?????"))
    shard.write_bytes(bytes(shard.stat().st_size))
    forged = json.loads((folder / record.FILE_NAME).read_bytes())
    for one in forged["files"]:
        if one["name"] == shard.name:
            one["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
    text = json.dumps(forged, sort_keys=True, indent=1) + "\n"
    (folder / record.FILE_NAME).write_text(text)
    with pytest.raises(CorruptReleaseError, match="is not what was published"):
        pull("released:1.0.0", signed, tmp_path / "here", keys=trusted, memory=memory)


def test_who_signs_an_index_does_not_vouch_for_others_releases(
    signed, trusted, tmp_path, keys, alice, mallory, built, memory
):
    """A release is its publisher's word, whoever changed the index after that."""
    (tmp_path / "both").write_text("".join(key.with_suffix(".pub").read_text() for key in keys))
    both = TrustedKeys.read(tmp_path / "both")
    publish(str(built("2.0.0")), signed, signer=mallory, keys=both, memory=memory)
    with pytest.raises(SignatureError, match=r"index of released .* not signed by a trusted key"):
        pull("released:2.0.0", signed, tmp_path / "here", keys=trusted, memory=memory)
    store = RetryingStore(open_store(signed))
    ledger = CatalogClient(store, keys=both, signer=alice, memory=memory)
    admin.yank(ledger, "released:1.0.0", "wrong")
    admin.require_signatures(ledger, required=True)
    with pytest.raises(
        SignatureError, match=r"release released:2\.0\.0 .* not signed by a trusted key"
    ):
        pull("released:2.0.0", signed, tmp_path / "here", keys=trusted, memory=memory)
    pull("released:1.1.0", signed, tmp_path / "here", keys=trusted, memory=memory)
    assert pull("released:2.0.0", signed, tmp_path / "here", keys=both, memory=memory).path.is_dir()


def test_an_older_state_is_refused(signed, trusted, alice, tmp_path, built, memory):
    old = index_of(signed).read_bytes()
    old_list = (signed / "my-datasets" / "store.json").read_bytes()
    pull("released:1.0.0", signed, tmp_path / "here", keys=trusted, memory=memory)
    ledger = CatalogClient(RetryingStore(open_store(signed)), keys=trusted, signer=alice)
    admin.yank(ledger, "released:1.1.0", "wrong")
    admin.require_signatures(ledger, required=True)
    assert (
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory).path.name
        == "1.0.0"
    )
    index_of(signed).write_bytes(old)
    with pytest.raises(SignatureError, match=r"older state of index of released(.|\n)*serial 4"):
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory)
    index_of(signed).unlink()
    with pytest.raises(SignatureError, match="older state"):
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory)
    (signed / "my-datasets" / "store.json").write_bytes(old_list)
    with pytest.raises(SignatureError, match="older state of store"):
        pull("released", signed, tmp_path / "here", keys=trusted, memory=memory)
    # Another machine has seen nothing yet.
    index_of(signed).write_bytes(old)
    pull(
        "released",
        signed,
        tmp_path / "here",
        keys=trusted,
        memory=RollbackState(tmp_path / "other"),
    )


def test_a_memory_that_cannot_be_written(signed, trusted, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    pull(
        "released",
        signed,
        tmp_path / "here",
        keys=trusted,
        memory=RollbackState(tmp_path / "file" / "x"),
    )
    assert "could not be recorded" in caplog.text


def test_releases_are_signed_afterwards(tmp_path, built, alice, mallory, trusted, memory):
    store = tmp_path / "store"
    for version in ("1.0.0", "1.1.0"):
        publish(str(built(version)), store)
    admin.sign(CatalogClient(RetryingStore(open_store(store)), signer=alice))
    assert pull("released", store, tmp_path / "here", keys=trusted, memory=memory).path.is_dir()
    (one, _) = admin.releases(
        CatalogClient(RetryingStore(open_store(store)), keys=trusted, memory=memory)
    )
    assert [by.key for by in one.release.signatures] == [alice.fingerprint]
    assert publish(str(built()), store, signer=alice).outcome is Outcome.ALREADY
    events = admin.history(CatalogClient(RetryingStore(open_store(store))), "released")
    assert [event.by for event in events if event.action == "sign"] == [alice.fingerprint] * 2


def test_no_secret_is_shown_or_stored(signed, keys, alice):
    secret = keys[0].read_text().splitlines()[3]
    stored = b"".join(path.read_bytes() for path in signed.rglob("*") if path.is_file())
    assert secret.encode() not in stored
    assert secret not in repr(alice) + str(vars(alice))
