"""TLS and SASL are passed through, and nothing that is secret is ever shown."""

import datetime
import ipaddress
import logging
import pickle

import pytest

from my_datasets.errors import StreamError
from my_datasets.kafka import connection
from my_datasets.kafka.connection import Connection, TopicAddress
from my_datasets.kafka.stream import stream
from tests.kafka import kafka
from tests.kafka.examples import FEATURES, ids, numbered

PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 that signs itself: its file, and that of its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    directory = tmp_path_factory.mktemp("tls")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (directory / "certificate.pem").write_bytes(pem)
    (directory / "both.pem").write_bytes(secret + pem)
    return directory


@pytest.fixture(scope="module")
def secured(tmp_path_factory, certificate):
    """A broker that takes strangers in the clear, and one user over TLS."""
    kafka.require()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker = kafka.Broker(
        tmp_path_factory.mktemp("secured"),
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate / "both.pem"),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login} user_ada="{PASSWORD}";',
        },
    )
    broker.start()
    yield broker
    broker.stop()


def options(certificate, password=PASSWORD):
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificate / "certificate.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": password,
    }


def read(url, given, **more):
    return stream(url, features=FEATURES, as_numpy=True, until="end", options=given, **more)


@pytest.mark.kafka
def test_a_user_reads_over_tls(secured, certificate, tmp_path):
    from my_datasets.kafka.snapshot import snapshot

    kafka.produce(secured.topic("secret", 2), {0: numbered(range(10)), 1: numbered(range(10, 20))})
    url = f"kafka://127.0.0.1:{secured.secure_port}/secret"
    assert sorted(ids(read(url, options(certificate)))) == list(range(20))
    assert sorted(ids(read(url, options(certificate), group="tls"))) == list(range(20))
    done = snapshot(
        url, "secret:1.0.0", features=FEATURES, options=options(certificate), data_dir=tmp_path
    )
    assert done.examples == 20
    # ... and what is written holds nothing of it, also not where unfinished builds are kept.
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(PASSWORD.encode() in path.read_bytes() for path in written)


@pytest.mark.kafka
def test_a_wrong_password_is_an_error_at_once_that_does_not_show_it(secured, certificate, caplog):
    caplog.set_level(logging.DEBUG)
    url = f"kafka://127.0.0.1:{secured.secure_port}/secret"
    with pytest.raises(StreamError, match=r"correct sasl\.username") as caught:
        next(read(url, options(certificate, "wrong-horse")))
    assert "wrong-horse" not in str(caught.value) + caplog.text


@pytest.mark.kafka
def test_a_certificate_that_nobody_trusts_is_an_error_that_says_so(secured, certificate):
    url = f"kafka://127.0.0.1:{secured.secure_port}/secret"
    given = {k: v for k, v in options(certificate).items() if k != "ssl.ca.location"}
    with pytest.raises(StreamError, match=r"correct ssl\.ca\.location"):
        next(read(url, given))


def test_secrets_are_not_shown_by_anything(monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.5)
    secrets = {
        "sasl.password": "hunter2hunter2",
        "ssl.key.password": "another-secret",
        "ssl.key.pem": "-----BEGIN PRIVATE KEY-----",
        "sasl.oauthbearer.client.secret": "oauth-secret",
    }
    found = Connection(TopicAddress("127.0.0.1:1", "t"), {"client.id": "me", **secrets})
    shown = [repr(found)]
    shown.append(str(found.failed(Exception(f"it says {secrets['sasl.password']}"))))
    data = read("kafka://127.0.0.1:1/t", {"sasl.password": "hunter2hunter2"})
    shown += [repr(data), repr(vars(data))]
    with pytest.raises(StreamError) as caught:
        next(read("kafka://127.0.0.1:1/t", {"sasl.password": "hunter2hunter2"}))
    shown.append(str(caught.value))
    # Taken for another option: Kafka's client repeats what it does not take.
    swapped = dict.fromkeys(["sasl.password", "security.protocol"], "hunter2hunter2")
    with pytest.raises(ValueError, match="rejects these options") as refused:
        next(read("kafka://127.0.0.1:1/t", swapped))
    shown.append(str(refused.value))
    for text in shown:
        for value in secrets.values():
            assert value not in text


def test_a_secret_that_is_a_part_of_another_is_hidden_as_well():
    options = {"sasl.password": "abc", "ssl.key.password": "abcdef", "client.id": "x"}
    redact = Connection(TopicAddress("127.0.0.1:1", "t"), options).redact
    assert redact("abcdef and abc and x") == "*** and *** and x"
    assert redact("nothing") == "nothing"


def test_an_address_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match=r"sasl\.password") as caught:
        TopicAddress.parse("kafka://ada:hunter2@broker/topic")
    assert "hunter2" not in str(caught.value)


def test_how_a_topic_is_reached_can_be_sent_to_other_processes():
    found = Connection(TopicAddress("127.0.0.1:1", "t"), {"sasl.password": "x"})
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("url", "brokers", "topic"),
    [
        ("kafka://broker/topic", "broker", "topic"),
        ("kafka://a:9092,b:9093/my.topic-1_x", "a:9092,b:9093", "my.topic-1_x"),
        ("kafka://[::1]:9092/t", "[::1]:9092", "t"),
    ],
)
def test_addresses(url, brokers, topic):
    assert TopicAddress.parse(url) == TopicAddress(brokers, topic)
    assert str(TopicAddress.parse(url)) == url


@pytest.mark.parametrize(
    "url",
    ["broker/topic", "kafka://broker", "kafka:///topic", "kafka://broker/", "kafka://b/a/b",
     "kafka://b/..", "kafka://b:port/t", "kafka://b c/t", "http://broker/topic", "kafka://b/t?x"],
)  # fmt: skip
def test_what_is_no_address(url):
    with pytest.raises(ValueError, match="is not the address of a topic"):
        TopicAddress.parse(url)
