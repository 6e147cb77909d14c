"""Runners with a job server that one build starts for all its pipelines, and stops.

Beam's own runner for Flink starts one for each pipeline, and all of them stay until Python ends;
those for Spark and Prism keep one until then. If Python is killed, they stay for ever.
"""

import atexit
import threading

from apache_beam.options.pipeline_options import PipelineOptions, SparkRunnerOptions
from apache_beam.runners.portability import flink_runner, job_server, prism_runner, spark_runner

from my_datasets.building.engines.beam.runners import tied_process


class _Process(job_server.JobServer):  # type: ignore[misc]
    """A job server that is started once, and stopped by the build.

    Beam's `StopOnExitJobServer` replaces the handler of Ctrl-C with one that waits for a lock that
    the interrupted code may hold, and that stops the server even where Ctrl-C is ignored.
    """

    def __init__(self, server: job_server.SubprocessJobServer) -> None:
        self._lock = threading.Lock()
        self._server = server
        self._endpoint: str | None = None

    def start(self) -> str:
        with self._lock:
            if self._endpoint is None:
                self._endpoint = self._server.start()
                atexit.register(self.stop)
            return self._endpoint

    def stop(self) -> None:
        with self._lock:
            if self._endpoint is not None:
                self._endpoint = None
                atexit.unregister(self.stop)
                self._server.stop()


class LazyJobServer:
    """Starts a job server for the first pipeline, and keeps it for the next ones."""

    _server: _Process | None = None

    def default_job_server(self, options: PipelineOptions) -> job_server.JobServer:
        """Returns the job server; Beam calls this where there is no option `job_endpoint`."""
        if self._server is not None:
            return self._server
        server = self._made(options)
        if isinstance(server, _Process):  # other ones start no process
            self._server = server
        return server

    def stop(self) -> None:
        """Stops the process. A later pipeline starts another one."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        raise NotImplementedError


class FlinkRunner(LazyJobServer, flink_runner.FlinkRunner):  # type: ignore[misc]
    """Runs pipelines on Flink."""

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        # This also completes the master's address in the options.
        server = flink_runner.FlinkRunner.default_job_server(self, options)
        if not isinstance(server, job_server.StopOnExitJobServer):
            return server
        return _Process(_OfFlink(options))


class SparkRunner(LazyJobServer, spark_runner.SparkRunner):  # type: ignore[misc]
    """Runs pipelines on Spark."""

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        if options.view_as(SparkRunnerOptions).spark_submit_uber_jar:
            return spark_runner.SparkRunner.default_job_server(self, options)
        # Beam caches its own by options, so that a later build would get a stopped one.
        return _Process(_OfSpark(options))


class PrismRunner(LazyJobServer, prism_runner.PrismRunner):  # type: ignore[misc]
    """Runs pipelines on Prism, which is its own job server."""

    def _made(self, options: PipelineOptions) -> job_server.JobServer:
        return _Process(_OfPrism(options))


class _EndingWithTheBuild(job_server.SubprocessJobServer):  # type: ignore[misc]
    """A job server that ends with the building process, even by SIGKILL."""

    def subprocess_cmd_and_endpoint(self) -> tuple[list[str], str]:
        # The calling thread is the one that builds, and it stops the server before it ends.
        command, endpoint = super().subprocess_cmd_and_endpoint()
        return tied_process.command_for([str(part) for part in command]), endpoint


class _OfFlink(_EndingWithTheBuild, flink_runner.FlinkJarJobServer):  # type: ignore[misc]
    pass


class _OfSpark(_EndingWithTheBuild, spark_runner.SparkJarJobServer):  # type: ignore[misc]
    pass


class _OfPrism(_EndingWithTheBuild, prism_runner.PrismJobServer):  # type: ignore[misc]
    pass
