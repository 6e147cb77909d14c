"""The function that workers run: it makes the requested pieces."""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tensors import Draws, piece_arrays
from my_datasets.input_pipeline.service.request import ServiceRequest

# Plans whose data stays open: more than the trainers that share a worker.
_MOST_OPEN = 16


class Maker:
    """Makes pieces of any plan requested.

    Attributes:
      name: The worker's address, which is sent with each piece.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._opened: OrderedDict[bytes, _Opened] = OrderedDict()

    def __call__(self, request: bytes, place: Any) -> list[Any]:
        """Returns a piece: its maker, the number of examples skipped so far, and its arrays.

        Args:
          request: A serialized `Request`.
          place: Which piece; see `tensors.place_of`.

        Raises:
          MyDatasetsError: Any error of `Engine`; TensorFlow carries its text to the trainer.
        """
        with self._lock:
            opened = self._opened.setdefault(bytes(request), _Opened())
            self._opened.move_to_end(bytes(request))
            if len(self._opened) > _MOST_OPEN:
                self._opened.popitem(last=False)
        engine, draws = opened.engine(bytes(request))
        arrays = piece_arrays(engine, place, draws)
        name = np.array(self.name.encode(), object)
        return [name, np.int64(engine.skipped), *arrays]


class _Opened:
    """The data of one plan, opened on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: tuple[Engine, Draws | None] | None = None

    def engine(self, request: bytes) -> tuple[Engine, Draws | None]:
        with self._lock:
            if self._found is None:
                asked = ServiceRequest.from_json(request.decode())
                engine = Engine(asked.plan, asked.start, single=asked.single)
                self._found = engine, asked.draws
            return self._found
