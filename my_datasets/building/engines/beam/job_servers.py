"""Runners whose job server is a Java process: one for all pipelines of a build.

Beam's own runner for Flink starts a process for each pipeline, and all of them stay until Python
ends; its runner for Spark keeps one, until then as well.
"""

from typing import Any

from apache_beam.options.pipeline_options import SparkRunnerOptions
from apache_beam.runners.portability import flink_runner, job_server, spark_runner


class KeepingServer:
    """Starts a job server when it is first asked for, and keeps it."""

    _server: job_server.StopOnExitJobServer | None = None

    def default_job_server(self, options: Any) -> job_server.JobServer:
        """Returns the job server; Beam asks for it where no `job_endpoint` was given.

        Args:
          options: The options of the pipeline, the same ones for all of a build.
        """
        if self._server is not None:
            return self._server
        server = self._made(options)
        if isinstance(server, job_server.StopOnExitJobServer):  # else no process, and no server
            self._server = server
        return server

    def stop(self) -> None:
        """Ends the process. A pipeline after that starts another one."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _made(self, options: Any) -> job_server.JobServer:
        raise NotImplementedError


class FlinkRunner(KeepingServer, flink_runner.FlinkRunner):  # type: ignore[misc]
    """Runs pipelines on Flink."""

    def _made(self, options: Any) -> job_server.JobServer:
        return flink_runner.FlinkRunner.default_job_server(self, options)


class SparkRunner(KeepingServer, spark_runner.SparkRunner):  # type: ignore[misc]
    """Runs pipelines on Spark."""

    def _made(self, options: Any) -> job_server.JobServer:
        if options.view_as(SparkRunnerOptions).spark_submit_uber_jar:
            return spark_runner.SparkRunner.default_job_server(self, options)
        # Not Beam's, which a later build with the same options would get after it was stopped.
        return job_server.StopOnExitJobServer(spark_runner.SparkJarJobServer(options))
