"""The runners: what is asked before a build, and builds on real ones in other processes."""

import itertools
import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from my_datasets import errors
from my_datasets.building.engines.beam import build_files, preflight, workers
from my_datasets.building.engines.beam.runners import Submission
from my_datasets.building.engines.beam.workspace import SharedDirectory
from tests.building.engines import beam_toys, toys
from tests.building.engines.builds import build, hashes
from tests.conftest import ROOT

pytestmark = pytest.mark.integration

BEAM_FILES = ROOT / ".beam"


@pytest.mark.parametrize("cls", [toys.InUnits, beam_toys.OfPipeline])
def test_dask_with_two_workers_gives_the_same_bytes(reference, tmp_path, dask_cluster, cls):
    options = {**dask_cluster.options, "dask_npartitions": 5}
    assert hashes(build(cls, tmp_path, engine="beam", beam_options=options)) == reference


def test_dask_keeps_what_the_runner_of_beam_loses(tmp_path, dask_in_process):
    """All leaves, what bundles give when they finish, side inputs, metrics that can be asked."""
    import apache_beam as beam

    class Finishing(beam.DoFn):
        def start_bundle(self):
            self.seen = 0

        def process(self, element):
            self.seen += element
            yield element

        def finish_bundle(self):
            yield beam.utils.windowed_value.WindowedValue(
                1000 * self.seen, 0, [beam.transforms.window.GlobalWindow()]
            )

    def note(name):
        return lambda value: (tmp_path / name).write_text(repr(value))

    submission = Submission(
        {"runner": "dask", "dask_client_address": dask_in_process, "dask_npartitions": 3}
    )
    pipeline = submission.pipeline()
    numbers = pipeline | beam.Create(range(10))
    total = numbers | "Total" >> beam.CombineGlobally(sum)
    _ = total | "First leaf" >> beam.Map(note("total"))
    finished = numbers | beam.ParDo(Finishing()) | "All" >> beam.CombineGlobally(sum)
    _ = finished | "Second leaf" >> beam.Map(note("finished"))
    pairs = numbers | beam.Map(lambda n, whole: (n % 3, n + whole), beam.pvalue.AsSingleton(total))
    groups = pairs | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sorted(values)))
    looked_up = numbers | "Look up" >> beam.Map(
        lambda n, table: len(table[n % 3]), beam.pvalue.AsDict(groups)
    )
    both = (looked_up, numbers) | beam.Flatten() | "Count" >> beam.combiners.Count.Globally()
    _ = both | "Third leaf" >> beam.Map(note("both"))
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"
    assert result.metrics().query()["counters"] == []
    submission.close()
    assert (tmp_path / "total").read_text() == "45"
    assert (tmp_path / "finished").read_text() == str(45 + 45_000)
    assert (tmp_path / "both").read_text() == "20"


def test_a_chunk_that_dask_makes_again_is_the_same(tmp_path, dask_in_process):
    """Else what was taken of a chunk before its worker died and after that does not add up."""
    import apache_beam as beam

    class Note(beam.DoFn):
        def __init__(self, place):
            self.place = place

        def start_bundle(self):
            self.seen = []

        def process(self, element):
            self.seen.append(element)

        def finish_bundle(self):
            if self.seen:
                (self.place / str(min(self.seen))).write_text(json.dumps(self.seen))

    submission = Submission(
        {"runner": "dask", "dask_client_address": dask_in_process, "dask_npartitions": 3}
    )
    found = []
    for name in ("once", "again"):
        place = tmp_path / name
        place.mkdir()
        pipeline = submission.pipeline()
        numbers = pipeline | beam.Create(range(100)) | beam.Reshuffle()
        _ = numbers | beam.ParDo(Note(place))
        assert pipeline.run().wait_until_finish() == "DONE"
        found.append(sorted(json.loads(path.read_text()) for path in place.iterdir()))
    submission.close()
    assert found[0] == found[1]
    assert sorted(itertools.chain(*found[0])) == list(range(100))
    assert len(found[0]) == 3
    assert min(map(len, found[0])) > 10


def test_an_error_in_a_worker_of_dask_is_the_builders_own(tmp_path, dask_cluster, monkeypatch):
    monkeypatch.setattr(beam_toys.Given, "pairs", [("a", {"n": 1}), ("b", {"n": "x"})])
    options = dask_cluster.options
    with pytest.raises(errors.ExampleError, match="Key: b\n  Feature: n"):
        build(beam_toys.Given, tmp_path, config=None, beam_options=options)


def _fetched(name, target):
    """Returns a file that make fetches or builds, or leaves the test out."""
    found = sorted(BEAM_FILES.glob(name))
    if not found:
        pytest.skip(f"there is no .beam/{name}: run `make {target}` first")
    return str(found[-1])


@pytest.mark.slow
@pytest.mark.parametrize("cls", [toys.InUnits, beam_toys.OfPipeline])
def test_prism_gives_the_same_bytes(reference, tmp_path, cls):
    options = {"runner": "prism", "prism_location": _fetched("prism", "prism")}
    assert hashes(build(cls, tmp_path, engine="beam", beam_options=options)) == reference


@pytest.mark.slow
def test_prism_whose_workers_cannot_start_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "_BEGIN", 5.0)
    options = {
        "runner": "prism", "prism_location": _fetched("prism", "prism"),
        "environment_type": "PROCESS", "environment_config": '{"command": "/bin/cat"}',
    }  # fmt: skip
    begin = time.monotonic()
    with pytest.raises(errors.BuildInterruptedError, match="No worker has begun within 5 seconds"):
        build(toys.InUnits, tmp_path, engine="beam", beam_options=options)
    assert time.monotonic() - begin < 60  # far from the minutes that Prism itself would wait


@pytest.mark.slow
@pytest.mark.parametrize("cls", [toys.InUnits, beam_toys.OfPipeline])
@pytest.mark.parametrize("name", ["flink", "spark"])
def test_job_servers_give_the_same_bytes(reference, tmp_path, name, cls):
    jar = _fetched(f"{name}-job-server.jar", name)
    options = {"runner": name, f"{name}_job_server_jar": jar}
    if name == "spark":
        options["spark_master_url"] = "local[2]"
    assert hashes(build(cls, tmp_path, engine="beam", beam_options=options)) == reference


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"runner": "nix"}, "There is no preset for the runner 'nix'"),
        ({"runner": "dask", "dask_npartition": 3}, "Did you mean 'dask_npartitions'"),
        ({"runner": "prism"}, "`make prism` builds it with Go"),
        ({"runner": "prism", "prism_location": "/nowhere"}, "no executable program"),
        ({"runner": "flink"}, "needs flink_job_server_jar, or the job_endpoint"),
        ({"runner": "spark", "spark_job_server_jar": "/no.jar"}, "which is no file"),
        ({"runner": "portable"}, "needs the address of a job server"),
        ({"runner": "dataflow"}, r"pip install 'apache-beam\[gcp\]'"),
    ],
)
def test_options_that_cannot_work_are_reported_at_once(tmp_path, options, said):
    with pytest.raises(errors.InvalidOptionError, match=said):
        build(toys.InUnits, tmp_path, beam_options=options)
    assert not list(tmp_path.glob("*/1.0.0"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs project and region"),
        ({"project": "p"}, "needs region"),
        ({"project": "p", "region": "r"}, "temp_location is ''"),
        (
            {"project": "p", "region": "r", "temp_location": "gs://b/t"},
            "No option sends this package and the builder's",
        ),
    ],
)
def test_options_of_dataflow_are_complete_before_anything_is_sent(
    tmp_path, monkeypatch, given, said
):
    # Stands in for the extra apache-beam[gcp], whose presence is all that counts here.
    (tmp_path / "apitools.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(errors.InvalidOptionError, match=said):
        Submission({"runner": "dataflow", **given})
    whole = {"project": "p", "region": "r", "temp_location": "gs://b/t", "setup_file": "./setup.py"}
    assert Submission({"runner": "dataflow", **whole}).at_once(1) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"job_endpoint": "127.0.0.1:1"}, "where a job server should answer"),
        ({"flink_master": "127.0.0.1:1"}, "where a Flink JobManager should answer"),
        ({"spark_master_url": "spark://127.0.0.1:1"}, "where a Spark master should answer"),
    ],
)
def test_addresses_where_nobody_answers_are_reported_within_seconds(options, said):
    submission = Submission({"runner": "portable", "job_endpoint": "127.0.0.1:1"})
    submission.options = options
    begin = time.monotonic()
    with pytest.raises(errors.BuildInterruptedError, match=said):
        preflight.check(submission, None, None)
    assert time.monotonic() - begin < 60  # gRPC itself would wait for minutes


def test_what_a_runner_in_java_says_is_reported_without_its_frames(tmp_path):
    frames = "\tat org.apache.Some$.run(Some.scala:80)\n" * 30
    said = f"java.io.IOException: No disk\n{frames}Caused by: it\n{frames}  call(one)\n"
    error = build_files.BuildFiles(SharedDirectory(tmp_path)).failure("sorting", RuntimeError(said))
    assert "disk\n    | Caused by: it\n    |   call(one)" in str(error)
    assert "Some.scala" not in str(error)


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        ("[local]", True), ("[auto]", True), ("127.0.0.1:8081", True), ("local", True),
        ("local[2]", True), ("local[*]", True), ("local-cluster[2,1,1024]", True),
        ("spark://[::1]:7077", True), ("cluster:8081", False), ("spark://10.0.0.7:7077", False),
        ("locals:7077", False),
    ],
)  # fmt: skip
def test_masters_of_this_machine_are_known(master, is_here):
    """Only there workers may ask this process to do the work."""
    assert preflight.is_on_this_machine(master) is is_here


# In place of Java: notes its process, and is a server at the port that it was told.
_JOB_SERVER = """
import concurrent.futures, os, sys, grpc
with open(sys.argv[0] + ".started", "a") as notes:
    print(os.getpid(), file=notes)
server = grpc.server(concurrent.futures.ThreadPoolExecutor())
server.add_insecure_port("localhost:" + sys.argv[sys.argv.index("--job-port") + 1])
server.start()
server.wait_for_termination()
"""


@pytest.mark.parametrize("name", ["flink", "spark"])
def test_a_build_has_one_job_server_and_ends_it(tmp_path, name):
    java, jar = tmp_path / "java", tmp_path / "x.jar"
    java.write_text(f"#!{sys.executable}{_JOB_SERVER}")
    java.chmod(0o755)
    jar.touch()
    submission = Submission(
        {"runner": name, f"{name}_job_server_jar": str(jar), "job_server_java_launcher": str(java)}
    )
    for _ in range(2):
        for _ in range(3):
            pipeline = submission.pipeline()
            pipeline.runner.default_job_server(pipeline._options).start()
        submission.close()
    started = Path(f"{java}.started").read_text().split()
    assert len(started) == 2
    assert not any(psutil.pid_exists(int(pid)) for pid in started)


def test_loopback_is_refused_where_workers_are_elsewhere(tmp_path):
    """A master answers at an address that is not that of this machine's clusters."""
    java, jar = tmp_path / "java", tmp_path / "x.jar"
    java.write_text("#!/bin/false\n")
    java.chmod(0o755)
    jar.touch()
    with socket.create_server(("127.0.0.2", 0)) as master:
        host, port = master.getsockname()
        options = {
            "runner": "flink", "flink_job_server_jar": str(jar),
            "job_server_java_launcher": str(java), "flink_master": f"{host}:{port}",
        }  # fmt: skip
        with pytest.raises(errors.InvalidOptionError, match="an address that only this machine"):
            preflight.check(Submission(options), None, None)
        # The master was asked before the options were compared.
        master.settimeout(5)
        master.accept()[0].close()


def test_a_command_of_workers_that_is_none_is_refused(tmp_path):
    command = '{"command": "/nonexistent/boot"}'
    options = {
        "runner": "portable", "job_endpoint": "[auto]", "environment_type": "PROCESS",
        "environment_config": command,
    }  # fmt: skip
    with pytest.raises(errors.InvalidOptionError, match="'/nonexistent/boot'"):
        preflight.check(Submission(options), None, None)


def test_a_scheduler_that_is_not_there_is_reported_within_seconds(tmp_path, monkeypatch):
    from my_datasets.building.engines.beam import dask_runner

    monkeypatch.setattr(dask_runner, "_TIMEOUT", 2)
    options = {"runner": "dask", "dask_client_address": "tcp://127.0.0.1:1"}
    with pytest.raises(errors.BuildInterruptedError, match="does not answer, or has no worker"):
        build(toys.InUnits, tmp_path, beam_options=options)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"versions": {"numpy": "0.1", "zlib": "9"}}, r"has numpy .* 0\.1\), zlib .* 9\)"),
        ({"place": SharedDirectory(Path("/nowhere"))}, "does not see /nowhere"),
        ({"place": SharedDirectory(Path("/", "n" * 300))}, "cannot use .*File name too long"),
        ({"modules": ("no_such_package.builder",)}, "cannot import no_such_package.builder"),
        ({"modules": ("reads_a_file",)}, "cannot import reads_a_file: FileNotFoundError: .*words"),
    ],
)
def test_what_a_worker_lacks_is_reported(tmp_path, monkeypatch, changed, said):
    (tmp_path / "reads_a_file.py").write_text("open('/nonexistent/words')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = workers.WorkerEnvironment(**{"place": SharedDirectory(tmp_path), **changed})
    with pytest.raises(errors.BuildInterruptedError, match=said):
        wanted.check()
    assert workers.WorkerEnvironment(SharedDirectory(tmp_path), ("json",)).check()


def test_workers_without_the_builder_are_reported_before_anything_is_generated(
    tmp_path, dask_cluster, monkeypatch
):
    """The builder's module is one that only this process has."""
    (tmp_path / "only_here.py").write_text(
        "from tests.building.engines import toys\n"
        "class Toy(toys.InUnits, skip_registration=True):\n    name = 'toy_engine'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    options = dask_cluster.options
    with pytest.raises(errors.BuildInterruptedError, match="A worker cannot import only_here"):
        build(only_here.Toy, tmp_path / "data", beam_options=options)


def test_options_of_beam_and_tfds_come_together():
    given = PipelineOptions(["--runner=FlinkRunner", "--flink_master=[local]", "--experiments=a"])
    submission = Submission({"job_endpoint": "127.0.0.1:1"}, beam_options=given)
    assert submission.preset.name == "flink"
    options = submission.pipeline()._options
    assert "a" in options.view_as(DebugOptions).experiments
    assert submission.options["environment_type"] == "LOOPBACK"
    assert submission.at_once(1 << 30) is None


def test_the_in_process_runner_is_beams_own_and_looks_for_nothing_to_download(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_: pytest.fail("looked for a program"))
    for name in ("", "in-process", "DirectRunner", "FnApiRunner"):
        runner = Submission({"runner": name}).pipeline().runner
        assert type(runner).__name__ == "FnApiRunner"


def test_workers_examine_the_shards_too(reference, tmp_path, dask_in_process, monkeypatch):
    """Digests and statistics are made where the workers are, and are the same."""
    from my_datasets.comparison import examine

    local = build(toys.InUnits, tmp_path / "local", workers=1)
    monkeypatch.setattr(examine, "read_each", lambda *_, **__: pytest.fail("examined here"))
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    on_beam = build(toys.InUnits, tmp_path / "beam", engine="beam", beam_options=options)
    manifests = [
        json.loads((place / "my_datasets_manifest.json").read_text()) for place in (local, on_beam)
    ]
    for member in ("content", "statistics"):
        assert manifests[0][member] == manifests[1][member]
    assert [path.name for path in sorted(on_beam.parent.iterdir())] == [".1.0.0.lock", "1.0.0"]


def test_findings_that_are_lost_are_made_again(tmp_path, dask_in_process, monkeypatch):
    original, lost = SharedDirectory.write, []

    def losing(self, name, data):
        if name.startswith("findings/") and not lost:
            lost.append(name)
            return
        original(self, name, data)

    monkeypatch.setattr(SharedDirectory, "write", losing)
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    with pytest.raises(errors.LostExamplesError, match="while they were written"):
        build(toys.InUnits, tmp_path / "beam", engine="beam", beam_options=options)
    assert lost
    assert not (tmp_path / "beam/toy_engine/1.0.0").exists()
    on_beam = build(toys.InUnits, tmp_path / "beam", engine="beam", beam_options=options)
    assert hashes(on_beam) == hashes(build(toys.InUnits, tmp_path / "local", workers=1))


def test_a_pool_of_workers_listens_where_it_is_reported_to(worker_pool):
    port = int(worker_pool.rpartition(":")[2])
    listening = {
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    # 127.0.0.1, as it is or as an address of IPv6.
    loopback = {f"{before}0100007F:{port:04X}" for before in ("", f"{'0' * 16}FFFF0000")}
    assert listening
    assert listening <= loopback


@pytest.fixture
def silent_runner():
    """An endpoint that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield beam_fn_api_pb2.StartWorkerRequest(
            worker_id="1", control_endpoint={"url": f"127.0.0.1:{server.getsockname()[1]}"}
        )


def test_a_worker_of_a_pool_is_a_process_that_ends_when_it_is_to(silent_runner, monkeypatch):
    from my_datasets.building.engines.beam import workers as worker_pool

    monkeypatch.setattr(worker_pool, "_GRACE", 0.1)
    pool = worker_pool.WorkerPool()
    pool.StartWorker(silent_runner, None)
    [worker] = pool._workers.values()
    assert worker.is_alive()
    assert worker.pid != os.getpid()
    pool.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1"), None)
    assert not worker.is_alive()
    pool.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1"), None)


def test_workers_end_with_their_pool_however_it_ends(silent_runner, worker_pool_process):
    address, process = worker_pool_process
    with grpc.insecure_channel(address) as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        assert not stub.StartWorker(silent_runner, timeout=60).error
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("spawn_main" in " ".join(child.cmdline()) for child in children)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(children, timeout=100)
    assert not left


def test_a_pool_that_cannot_listen_says_so():
    from my_datasets.building.engines.beam import workers as worker_pool

    with pytest.raises(errors.InvalidOptionError, match=r"cannot listen on 192\.0\.2\.1:1"):
        worker_pool.start_pool("192.0.2.1", 1)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [toys.InUnits, beam_toys.OfPipeline])
def test_workers_of_another_process_give_the_same_bytes(reference, tmp_path, environment, cls):
    options = {"runner": "prism", "prism_location": _fetched("prism", "prism"), **environment}
    assert hashes(build(cls, tmp_path, engine="beam", beam_options=options)) == reference
