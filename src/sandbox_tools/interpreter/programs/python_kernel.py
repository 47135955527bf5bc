"""IPython's kernel with output that waits for its reader, and with formatters for charts and data.

It imports nothing of ours, and nothing large that users' code may not need: it has 39 MB, 113 MB with pandas and matplotlib.
"""

import codecs
import contextlib
import fcntl
import importlib.abc
import importlib.machinery
import os
import select
import struct
import sys
import termios
import threading
import time
from importlib.util import find_spec
from typing import Any

import zmq
from ipykernel import iostream, kernelapp
from ipykernel.iostream import IOPubThread, OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets import ObjectName, Type, Unicode
from traitlets.config import Config

_MESSAGE = 32 << 10
"""Characters of one message; without this a print of 100 MB is one message."""
_BUFFERED = 64 << 10
_MESSAGES = 64
_LONGEST_TEXT = 10_000_000
_LONGEST_DRAIN_S = 1.0


class OutputThread(IOPubThread):
    """Makes the code that publishes wait while the server does not read, instead of dropping messages or growing."""

    def __init__(self, socket: Any, *arguments: Any, **options: Any) -> None:
        socket.sndhwm = _MESSAGES
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        super().__init__(socket, *arguments, **options)

    def schedule(self, f: Any) -> None:
        while len(self._events) > _MESSAGES and threading.current_thread() is not self.thread:
            if not self.thread.is_alive():
                break
            time.sleep(0.002)
        super().schedule(f)


class OutputStream(OutStream):
    """stdout or stderr of the kernel and of the programs that it runs."""

    flush_timeout = 10**9  # its main thread waits as long as nobody reads
    flush_interval = 0.05

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._watching = threading.Lock()
        self._unsent = 0
        super().__init__(*arguments, **options)

    def write(self, string: str) -> int:
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string)}")
        string = _encodable(string)
        for start in range(0, max(len(string), 1), _MESSAGE):
            part = string[start : start + _MESSAGE]
            super().write(part)
            self._unsent += len(part)
            if self._unsent >= _BUFFERED or len(part) == _MESSAGE:
                self.flush()
        return len(string)

    def flush(self) -> None:
        # Waits for another thread, and IPython calls it six times for each cell.
        if self._unsent:
            super().flush()

    def _flush(self) -> None:
        self._unsent = 0
        super()._flush()

    def _watch_pipe_fd(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        assert self._fid is not None
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        while self._should_watch:
            poll.poll()
            with self._watching:
                read = os.read(self._fid, _MESSAGE)
                if not read:
                    return
                self.write(decoder.decode(read))

    def drain(self) -> None:
        """Wait until what other programs have written is published."""
        if self._fid is None or not (_is_readable(self._fid) or self._watching.locked()):
            return
        until = time.monotonic() + _LONGEST_DRAIN_S
        while _is_readable(self._fid) and time.monotonic() < until:
            time.sleep(0.001)
        with self._watching:
            self.flush()


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no message can contain."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _is_readable(descriptor: int) -> bool:
    return bool(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])


class DataFormatter(BaseFormatter):
    """Columns of a pandas DataFrame."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, value: Any) -> Any:
        pandas: Any = sys.modules.get("pandas")
        if pandas is None or not isinstance(value, getattr(pandas, "DataFrame", ())):
            return super().__call__(value)
        frame: Any = value
        columns = frame.to_dict(orient="list")
        return {
            str(name): [
                cell.isoformat() if isinstance(cell, pandas.Timestamp) else cell for cell in cells
            ]
            for name, cells in columns.items()
        }


class ChartFormatter(BaseFormatter):
    """Contents of a matplotlib figure."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __call__(self, value: Any) -> Any:
        figures: Any = sys.modules.get("matplotlib.figure")
        if figures is None or not isinstance(value, getattr(figures, "Figure", ())):
            return super().__call__(value)
        try:
            from e2b_charts import chart_figure_to_dict  # noqa: PLC0415 - imports matplotlib
        except ImportError:
            return None
        try:
            return chart_figure_to_dict(value)
        except Exception:  # noqa: BLE001 - unusual figures are shown as images only
            return {}


class ListsFormatter(JSONFormatter):
    """Lists and dictionaries as JSON, with numpy's numbers."""

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, list | dict):
            return super().__call__(value)
        import orjson  # noqa: PLC0415 - not needed by most cells

        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        try:
            return orjson.loads(orjson.dumps(value, option=options)), {"expanded": True}
        except (TypeError, RecursionError):
            return super().__call__(value)


class _ShowImages(importlib.abc.MetaPathFinder):
    """Once Pillow is imported: images that are shown or saved become results."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _display_images(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _display_images(module: Any) -> None:
    save = module.Image.save

    def display_and_save(image: Any, fp: Any, *arguments: Any, **options: Any) -> None:
        if isinstance(fp, str | os.PathLike):
            _display(image)
        save(image, fp, *arguments, **options)

    module.Image.save = display_and_save
    module.Image.show = lambda image, *_, **__: _display(image)


def _display(value: Any) -> None:
    from IPython.display import display  # noqa: PLC0415

    display(value)


def _bound_text(formatter: Any) -> None:
    """Truncate texts that no client could use: a result is one message. Output that was written before comes first."""
    call = formatter.format

    def format_within_bounds(value: Any, *arguments: Any, **options: Any) -> Any:
        _drain()
        data, metadata = call(value, *arguments, **options)
        for name, text in data.items():
            if isinstance(text, str):
                data[name] = _encodable(text)
            if isinstance(text, str) and len(text) > _LONGEST_TEXT and name.startswith("text/"):
                data[name] = f"{_encodable(text[:_LONGEST_TEXT])}… ({len(text)} characters)"
        return data, metadata

    formatter.format = format_within_bounds


class PythonKernel(IPythonKernel):
    """Changes environment variables with the request that needs them: a request of their own would take as long again."""

    _execute_sleep = 0.0  # for flushes that are late; ours are not

    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        changes = parent["content"].get("environment", {})
        try:
            _set_variables(changes.get("before", {}))
            await super().execute_request(stream, ident, parent)
        except KeyboardInterrupt:
            # Just before or after the code: otherwise it would end as if it had run.
            error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            self.send_response(self.iopub_socket, "error", error)
        finally:
            _set_variables(changes.get("after", {}))


def _set_variables(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        with contextlib.suppress(ValueError):  # not all names and texts can be variables
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class PythonKernelApp(IPKernelApp):
    """The kernel of a Python context."""

    kernel_class = Type(PythonKernel)

    def init_shell(self) -> None:
        super().init_shell()
        assert self.shell is not None
        formatter = self.shell.display_formatter
        for kind, name in (
            (DataFormatter, "e2b/data"),
            (ChartFormatter, "e2b/chart"),
            (ListsFormatter, "application/json"),
        ):
            formatter.formatters[name] = kind(parent=formatter)
        _bound_text(formatter)
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
            # IPython asks programs for colours, which no client of ours shows.
            os.environ.pop(name, None)
        self.shell.events.register("post_execute", _drain)


def _drain() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, OutputStream):
            stream.drain()


def main() -> None:
    # The directory of this file, from which users' code must not import.
    sys.path[0] = ""
    vars(iostream)["IOPubThread"] = OutputThread
    vars(kernelapp)["IOPubThread"] = OutputThread
    sys.meta_path.insert(0, _ShowImages())
    config = Config()
    config.InteractiveShell.colors = "nocolor"
    config.PlainTextFormatter.max_seq_length = 0
    config.HistoryManager.enabled = False
    config.IPKernelApp.outstream_class = f"{__name__}.OutputStream"
    PythonKernelApp.launch_instance(config=config)


if __name__ == "__main__":
    main()
