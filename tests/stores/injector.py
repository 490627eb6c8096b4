"""A proxy in front of a server of the S3 protocol that has the faults of networks and gateways.

`decide(request)` is called with each request, before it is sent on, and returns what happens to it:

  None               it passes
  "refuse"           503 SlowDown; the server does not get it
  "reset"            the connection is reset before the server gets it
  "lose"             the server gets it; the connection is reset instead of its answer
  "fail"             the server gets it; the answer is 500
  "truncate"         the answer is cut in the middle of its body
  "malform"          the answer's body is cut, and its length as well: XML that has no end
  bytes              the answer's body, instead of the server's

`observe(request, status)` is called when the server has answered, before anybody else knows. Every answer takes
`latency_seconds` more, and the bodies of all together no more than `bytes_per_second`."""

import dataclasses
import socket
import struct
import threading
import time

PIECE = 1 << 18
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
INTERNAL = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"


@dataclasses.dataclass
class Request:
    number: int
    method: str
    target: str
    length: int


class Injector:
    def __init__(self, endpoint, latency_seconds=0, bytes_per_second=0):
        host, port = endpoint.removeprefix("http://").split(":")
        self.server = (host, int(port))
        self.decide = lambda request: None
        self.observe = lambda request, status: None
        self.latency_seconds = latency_seconds
        self.bytes_per_second = bytes_per_second
        self.free_at = 0  # when the link has sent what it was given
        self.lock = threading.Lock()
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(Connection(client),), daemon=True).start()

    def serve(self, client):
        server = None
        try:
            while True:
                head = client.read_head()
                if not head:
                    return
                begin = time.monotonic()
                method, target, _ = head[0].split(" ", 2)
                with self.lock:
                    request = Request(len(self.requests), method, target, length_of(head))
                    self.requests.append(request)
                body = client.reader.read(request.length)
                fault = self.decide(request)
                if fault == "reset":
                    return client.reset()
                if fault == "refuse":
                    self.answer(client, begin, "503 Slow Down", SLOW_DOWN)
                    continue
                server = server or Connection(socket.create_connection(self.server))
                server.send(head, body)
                if not self.pass_answer(client, request, server, fault, begin):
                    return
        except OSError:
            pass  # one of the two is gone, and so is the connection
        finally:
            client.close()
            if server:
                server.close()

    def pass_answer(self, client, request, server, fault, begin):
        """Whether the connection stays open."""
        head = server.read_head()
        if not head:
            client.reset()
            return False
        status = head[0].split(" ", 2)[1]
        self.observe(request, int(status))
        bodiless = request.method == "HEAD" or status in ("204", "304")
        body = b""
        if not bodiless:
            chunked = any(line.lower().startswith("transfer-encoding:") for line in head)
            body = server.read_chunks() if chunked else server.reader.read(length_of(head))
            head = with_length(head, len(body))
        if fault == "lose":
            client.reset()
            return False
        if fault == "fail":
            self.answer(client, begin, "500 Internal Server Error", INTERNAL if not bodiless else b"")
            return True
        if isinstance(fault, bytes) or fault == "malform":
            body = fault if isinstance(fault, bytes) else body[:len(body) // 2]
            head = with_length(head, len(body))
        if fault == "truncate" and not bodiless:
            body = body[:len(body) // 2]
        self.wait(begin + self.latency_seconds)
        client.send(head)
        self.send_body(client, body)
        return fault != "truncate"

    def answer(self, client, begin, status, body):
        self.wait(begin + self.latency_seconds)
        client.send([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"], body)

    def send_body(self, client, body):
        for at in range(0, len(body), PIECE):
            piece = body[at:at + PIECE]
            if self.bytes_per_second:
                with self.lock:
                    self.free_at = max(self.free_at, time.monotonic()) + len(piece) / self.bytes_per_second
                    until = self.free_at
                self.wait(until)
            client.socket.sendall(piece)

    @staticmethod
    def wait(until):
        left = until - time.monotonic()
        if left > 0:
            time.sleep(left)


class Connection:
    def __init__(self, connected):
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = connected.makefile("rb", PIECE)

    def read_head(self):
        """Its lines; none at the end of the connection."""
        lines = []
        while True:
            line = self.reader.readline()
            if not line:
                return []
            line = line.decode("latin-1").rstrip("\r\n")
            if line:
                lines.append(line)
            elif lines and lines[0].startswith("HTTP/1.1 100"):
                lines = []
            elif lines:
                return lines

    def read_chunks(self):
        """The body of a chunked answer."""
        body = b""
        while size := int(self.reader.readline().split(b";")[0], 16):
            body += self.reader.read(size)
            self.reader.readline()
        self.reader.readline()
        return body

    def send(self, head, body=b""):
        self.socket.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.reader.close()
        self.socket.close()


def with_length(head, length):
    """Of an answer whose body has another one, or came in chunks."""
    head = [line for line in head if not line.lower().startswith(("content-length:", "transfer-encoding:"))]
    return [*head, f"Content-Length: {length}"]


def length_of(head):
    for line in head:
        if line.lower().startswith("content-length:"):
            return int(line.split(":")[1])
    return 0
