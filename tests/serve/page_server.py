"""A control plane with `tutti serve`, and plain requests to it: for tests."""

import http.client
import json
import os
import re
import subprocess
import urllib.parse

TUTTI = os.environ["TUTTI_BINARY"]


class ControlPlane:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "TUTTI_CONTROL": os.path.join(folder, "control"),
                            "HOME": folder}
        self.environment.pop("TUTTI_TOKEN", None)

    def call(self, *arguments, token=None):
        environment = {**self.environment, **({"TUTTI_TOKEN": token} if token else {})}
        done = subprocess.run([TUTTI, *arguments, "--json"], env=environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (arguments, done.stderr)
        return json.loads(done.stdout)

    def token(self, user):
        return self.call("admin", "token", "--user", user)["token"]


class Server:
    """`tutti serve`, and plain requests to it."""

    def __init__(self, plane, *options, **variables):
        self.log = open(os.path.join(plane.folder, "serve.log"), "w+")
        self.process = subprocess.Popen([TUTTI, "serve", "--port", "0", "--json", *options],
                                        text=True, env={**plane.environment, **variables},
                                        cwd=plane.folder, stdout=subprocess.PIPE, stderr=self.log)
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.port = int(re.search(r":(\d+)/", self.url).group(1))

    def ask(self, method, path, fields=None, cookie=None, headers=None, source=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60,
                                                source_address=source and (source, 0))
        headers = dict(headers or {})
        if cookie:
            headers["Cookie"] = f"tutti={cookie}"
        body = None
        if fields is not None:
            body = urllib.parse.urlencode(fields)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, answer.headers

    def log_in(self, token):
        status, _, headers = self.ask("POST", "/login", {"token": token})
        assert status == 303, status
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie, cookie
        return re.match(r"tutti=([0-9a-f]{64});", cookie).group(1)

    def close(self):
        self.process.terminate()
        code = self.process.wait(timeout=120)
        self.log.seek(0)
        return code, self.log.read()
