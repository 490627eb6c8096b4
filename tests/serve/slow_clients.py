"""Slow clients: connections that send a byte now and then, in the header of a request or in its body,
and come again when they are closed. Runs until its standard input ends.
Usage: slow_clients.py PORT COUNT SECONDS_BETWEEN_BYTES [SOURCE_ADDRESS]...   prints "ready" once all
have been begun."""

import errno
import heapq
import resource
import select
import socket
import sys
import time

HEADER = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200000\r\n\r\n"
AGAIN_SECONDS = 0.5  # until a closed one comes again


class SlowClient:
    def __init__(self, number, port, sources):
        self.beginning = HEADER if number % 2 else BODY
        self.port = port
        self.source = sources[number % len(sources)] if sources else None
        self.socket = None

    def step(self):
        """Begins, or sends a byte. False: it was closed, or could not begin."""
        try:
            if self.socket is None:
                self.socket = socket.socket()
                if self.source:
                    self.socket.bind((self.source, 0))
                self.socket.settimeout(5)
                self.socket.connect(("127.0.0.1", self.port))
                self.socket.sendall(self.beginning)
                self.socket.setblocking(False)
                return True
            self.socket.send(b"x")
            return True
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return True
            self.socket.close()
            self.socket = None
            return False


def main():
    port, count, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 100), most))
    clients = [SlowClient(number, port, sys.argv[4:]) for number in range(count)]
    due = []
    for number, client in enumerate(clients):
        client.step()
        heapq.heappush(due, (time.monotonic() + seconds, number))
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], max(0, due[0][0] - time.monotonic()))[0]:
        _, number = heapq.heappop(due)
        pause = seconds if clients[number].step() else AGAIN_SECONDS
        heapq.heappush(due, (time.monotonic() + pause, number))


if __name__ == "__main__":
    main()
