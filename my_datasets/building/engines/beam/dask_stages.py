"""The tasks of a pipeline on Dask workers: stages of fused transforms, and parts of groupings.

A collection consists of chunks: adjacent elements with their windows, encoded by Beam's own coders.
A stage runs in Beam's own harness, as under any portable runner, so `start_bundle` and
`finish_bundle` run, and the latter's results are kept.
"""

import collections
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from apache_beam import coders
from apache_beam.coders.coder_impl import create_InputStream, create_OutputStream
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners import pipeline_context
from apache_beam.runners.portability.fn_api_runner import execution, worker_handlers
from apache_beam.transforms import trigger
from apache_beam.utils.windowed_value import WindowedValue

_BUNDLE = "bundle"


@dataclass(frozen=True)
class SideInput:
    """A side input of a transform."""

    transform: str
    tag: str
    access: bytes  # the access pattern, an encoded `FunctionSpec`
    coder: str  # of elements with their windows


@dataclass(frozen=True)
class Stage:
    """A stage, as workers get it."""

    descriptor: bytes  # an encoded `ProcessBundleDescriptor`
    source: str  # the transform that reads the bundle
    sinks: tuple[tuple[str, str], ...]  # the transforms that write, and the collection of each
    sides: tuple[SideInput, ...]


class _Manager:
    """Provides descriptors to Beam's worker handler."""

    def __init__(self, descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
        self._process_bundle_descriptors = {descriptor.id: descriptor}


def run(stage: Stage, chunk: bytes, sides: Sequence[Sequence[bytes]]) -> dict[str, bytes]:
    """Runs a stage on a chunk; returns a chunk of each output collection.

    Raises:
      RuntimeError: A transform failed, or needs a feature that this runner does not have.
    """
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(stage.descriptor)
    state = worker_handlers.StateServicer()
    context = pipeline_context.PipelineContext(
        beam_runner_api_pb2.Components(coders=descriptor.coders)
    )
    for side, chunks in zip(stage.sides, sides, strict=True):
        for key, data in _looked_up(side, chunks, context.coders.get_by_id(side.coder)):
            state.append_raw(key, data)
    handler = worker_handlers.EmbeddedWorkerHandler(None, state, None, _Manager(descriptor))
    try:
        return _process(handler, descriptor.id, stage, chunk)
    finally:
        handler.stop_worker()


def _process(
    handler: worker_handlers.EmbeddedWorkerHandler, descriptor: str, stage: Stage, chunk: bytes
) -> dict[str, bytes]:
    to_worker = handler.data_conn.output_stream(_BUNDLE, stage.source)
    to_worker.write(chunk)
    to_worker.close()
    request = beam_fn_api_pb2.InstructionRequest(
        instruction_id=_BUNDLE,
        process_bundle=beam_fn_api_pb2.ProcessBundleRequest(
            process_bundle_descriptor_id=descriptor
        ),
    )
    future = handler.control_conn.push(request)
    collection_of = dict(stage.sinks)
    found: dict[str, list[bytes]] = {collection: [] for collection in collection_of.values()}
    for output in handler.data_conn.input_elements(_BUNDLE, list(collection_of)):
        if not isinstance(output, beam_fn_api_pb2.Elements.Data):
            raise RuntimeError("This runner has no timers.")
        found[collection_of[output.transform_id]].append(output.data)
    result = future.get()
    if result.error:
        raise RuntimeError(result.error)
    done = result.process_bundle
    if done.residual_roots or done.requires_finalization or done.elements.timers:
        raise RuntimeError("This runner has no splitting, finalizing of bundles, or timers.")
    for output in done.elements.data:
        found[collection_of[output.transform_id]].append(output.data)
    return {collection: b"".join(parts) for collection, parts in found.items()}


def _looked_up(
    side: SideInput, chunks: Iterable[bytes], coder: coders.Coder
) -> Iterator[tuple[beam_fn_api_pb2.StateKey, bytes]]:
    """Yields the state of a side input, as Beam's own runner provides it."""
    access = beam_runner_api_pb2.FunctionSpec.FromString(side.access)
    by_window = execution.WindowGroupingBuffer(access, coder)
    for chunk in chunks:
        by_window.append(chunk)
    keys = beam_fn_api_pb2.StateKey
    for key, window, data, count in by_window.encoded_items():
        place = {"transform_id": side.transform, "side_input_id": side.tag, "window": window}
        if access.urn == common_urns.side_inputs.ITERABLE.urn:
            yield keys(iterable_side_input=keys.IterableSideInput(**place)), data
            continue
        yield keys(multimap_side_input=keys.MultimapSideInput(key=key, **place)), data
        yield keys(multimap_keys_side_input=keys.MultimapKeysSideInput(**place)), key
        pairs = keys.MultimapKeysValuesSideInput(**place)
        whole = key + struct.pack(">i", count) + data
        yield keys(multimap_keys_values_side_input=pairs), whole


@dataclass(frozen=True)
class Grouping:
    """A grouping by key, as workers get it."""

    components: bytes  # encoded `Components`, with the coders and the windowing
    given: str  # the coder of pairs with their windows
    grouped: str  # the coder of groups with their windows
    windowing: str


def split(grouping: Grouping, chunk: bytes, count: int, _number: int) -> list[bytes]:
    """Divides a chunk into `count` chunks; equal keys go to the same one."""
    coder = _context(grouping).coders.get_by_id(grouping.given)
    key_coder, implementation = coder.key_coder(), coder.get_impl()
    streams = [create_OutputStream() for _ in range(count)]
    for element in _decoded(chunk, coder):
        # Unlike Python's hashes, this one is the same in each process.
        which = zlib.crc32(key_coder.encode(element.value[0])) % count
        implementation.encode_to_stream(element, streams[which], True)
    return [stream.get() for stream in streams]


def group(grouping: Grouping, chunks: Sequence[bytes]) -> bytes:
    """Groups chunks that have all values of their keys."""
    context = _context(grouping)
    coder = context.coders.get_by_id(grouping.given)
    key_coder = coder.key_coder()
    by_key: dict[bytes, list[WindowedValue]] = collections.defaultdict(list)
    for chunk in chunks:
        for element in _decoded(chunk, coder):
            key, value = element.value
            by_key[key_coder.encode(key)].append(element.with_value(value))
    windowing = context.windowing_strategies.get_by_id(grouping.windowing)
    driver = trigger.create_trigger_driver(windowing, True)
    implementation = context.coders.get_by_id(grouping.grouped).get_impl()
    stream = create_OutputStream()
    for encoded, values in by_key.items():
        for one in driver.process_entire_key(key_coder.decode(encoded), values):
            implementation.encode_to_stream(one, stream, True)
    return bytes(stream.get())


def deal(grouping: Grouping, chunk: bytes, count: int, number: int) -> list[bytes]:
    """Deals the elements of a chunk to `count` chunks in turn, the same way on each call.

    It begins with its own `number`, because there may be many chunks of one element.
    """
    context = _context(grouping)
    coder = context.coders.get_by_id(grouping.given)
    implementation = context.coders.get_by_id(grouping.grouped).get_impl()
    streams = [create_OutputStream() for _ in range(count)]
    for place, element in enumerate(_decoded(chunk, coder), number):
        implementation.encode_to_stream(element, streams[place % count], True)
    return [stream.get() for stream in streams]


def join(_: Grouping, chunks: Sequence[bytes]) -> bytes:
    """Concatenates chunks."""
    return b"".join(chunks)


def _context(grouping: Grouping) -> pipeline_context.PipelineContext:
    components = beam_runner_api_pb2.Components.FromString(grouping.components)
    return pipeline_context.PipelineContext(components)


def _decoded(chunk: bytes, coder: coders.Coder) -> Iterator[WindowedValue]:
    implementation = coder.get_impl()
    stream = create_InputStream(chunk)
    while stream.size() > 0:
        yield implementation.decode_from_stream(stream, True)
