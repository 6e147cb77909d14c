"""A real Kafka broker on loopback, in KRaft mode; and librdkafka's mock of one."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from my_datasets.building.engines.beam.tied_process import command_for
from tests import programs
from tests.conftest import ROOT

POM = ROOT / "tests/kafka/broker/pom.xml"
VERSION = re.search(r"<version>(\d[\w.]*)</version>\s*</dependency>", POM.read_text())[1]
# Where `make kafka` puts the broker.
JARS = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    / "my_datasets_tests"
    / f"kafka-{VERSION}"
)
# Long: the machines that run tests are busy.
DEADLINE = 120.0
SUMS = ROOT / "tests/kafka/broker/SHA256SUMS"
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")


def require() -> None:
    """Leaves a test out where there is no broker."""
    if not (JARS / ".fetched").exists():
        programs.leave_out("the Kafka broker that `make kafka` fetches")
    programs.require("java", "Java")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Broker:
    """A broker and controller in one process, whose data outlive it."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.port, self.secure_port, self._controller = free_port(), free_port(), free_port()
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._write()
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", self._file)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def _file(self) -> Path:
        return self.directory / "server.properties"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command_for([*map(str, self._java()), "kafka.Kafka", str(self._file)]),
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + DEADLINE
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            if self._process.poll() is not None or time.monotonic() > end:
                pytest.fail((self.directory / "log").read_text()[-3000:])
            time.sleep(0.05)
        self.admin().list_topics(timeout=DEADLINE)

    def kill(self) -> None:
        """Kills it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stops it, if it runs."""
        self._end(signal.SIGTERM)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Makes a topic; returns its URL. In names of settings, `_` stands for `.`."""
        wanted = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=wanted)
        admin = self.admin()  # it must live until the answer comes
        admin.create_topics([new])[name].result(DEADLINE)
        return f"kafka://{self.address}/{name}"

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(DEADLINE)
            self._process = None

    def _java(self) -> list[str]:
        jars = ":".join(str(JARS / line.split()[1]) for line in SUMS.read_text().splitlines())
        return ["java", *_JAVA, "-cp", jars]

    def _run(self, *command: object) -> None:
        done = subprocess.run([*self._java(), *map(str, command)], capture_output=True, text=True)
        if done.returncode:
            pytest.fail(done.stdout + done.stderr)

    def _write(self) -> None:
        plain, control = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._controller}"
        secure = f"127.0.0.1:{self.secure_port}"
        has_secure = any(name.startswith("ssl.") for name in self._settings)
        more = f",SASL_SSL://{secure}" if has_secure else ""
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{control}",
            "listeners": f"PLAINTEXT://{plain},CONTROLLER://{control}{more}",
            "advertised.listeners": f"PLAINTEXT://{plain}{more}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_SSL:SASL_SSL",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **self._settings,
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._file.write_text("".join(lines))
        self._file.chmod(0o600)


def produce(
    url: str, values: dict[int, list[bytes | None]], *, key: bytes | None = None, **settings: object
) -> None:
    """Puts messages into partitions of a topic, and waits until they are there."""
    address, _, topic = url.removeprefix("kafka://").partition("/")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 5, "log_level": 0, **settings}
    )
    producer.list_topics(topic, timeout=DEADLINE)  # which the mock makes then
    failed: list[object] = []
    for partition, some in values.items():
        for value in some:
            producer.produce(
                topic, value, key, partition, lambda error, _: error and failed.append(error)
            )
            producer.poll(0)
    assert producer.flush(DEADLINE) == 0
    assert not failed


@contextlib.contextmanager
def mock() -> Iterator[str]:
    """Yields the address of librdkafka's mock broker, which lives as long as this."""
    owner = confluent_kafka.Producer(
        {"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0}
    )
    (broker,) = owner.list_topics(timeout=DEADLINE).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del owner
