"""Archives in the formats of the real datasets, and a web server that has them."""

import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

Named = tuple[str, bytes]


def gzipped_tar(files: Iterable[Named], change: Callable[[tarfile.TarInfo], None] = lambda _info: None) -> bytes:
    """A gzipped tar archive of these files; `change` may make something else of each entry."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            change(info)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: Iterable[Named], mode: int = 0, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these files with this Unix mode."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, compression)
    return packed.getvalue()


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""


@contextmanager
def serving(handler: type[Quiet]) -> Iterator[str]:
    """Serve requests in threads; yield the server's URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def served(files: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serve the files by their names; yield the URL of their folder, and a list of what is asked for."""
    asked: list[str] = []

    class Handler(Quiet):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/")
            asked.append(name)
            start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            body = files.get(name, b"")[start:]
            self.send_response(206 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        yield url, asked
