"""The page of the control plane in a real browser: two tenants, a job with curves, a budget, nodes and
their health, a recipe submitted from the form; what must not be seen is not, what must not be sent is
refused; light and dark, with and without scripts."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
for beside in ("report", "fault"):
    sys.path.insert(0, os.path.join(HERE, "..", beside))

try:
    import browser
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)
import small_run  # noqa: E402
from page_server import TUTTI, ControlPlane, Server  # noqa: E402

if not browser.CHROMIUM:
    print("skipped: Chromium is not installed")
    sys.exit(77)

EVIL = "<script>document.title='owned'</script>"
DESK, PHONE = (1440, 900), (390, 844)


def set_up(plane):
    """Two projects with a user each; alpha has a budget. Their tokens, and an operator's."""
    plane.call("queue")  # the first use makes this account the admin
    for user, project, role in (("ada", "alpha", "submitter"), ("bob", "beta", "submitter"),
                                ("vic", "alpha", "viewer"), ("olga", "*", "operator")):
        plane.call("admin", "user", user)
        if project != "*":
            plane.call("admin", "project", project, "--usd", "10", "--kwh", "5")
        plane.call("admin", "grant", user, role, "--project", project)
    plane.call("admin", "site", "--usd-per-node-hour", "30")
    return {user: plane.token(user) for user in ("ada", "bob", "vic", "olga")}


def submit(plane, recipe, token, project, name, *settings):
    return plane.call("submit", recipe, "train.steps=30000", *settings, "--project", project,
                      "--name", name, "--yes", "--no-start",
                      "--run", os.path.join(plane.folder, "run-" + project), token=token)["job"]


def wait_for(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.3)
    raise AssertionError("waited in vain for " + what)


def strangers(server, valid):
    """Who is not logged in sees nothing and changes nothing."""
    for method, path in (("GET", "/"), ("GET", "/sections"), ("GET", "/metrics"),
                         ("POST", "/submit"), ("POST", "/steer"), ("POST", "/logout")):
        status, text, headers = server.ask(method, path, {} if method == "POST" else None)
        assert status == 401, (path, status)
        assert "alpha" not in text, (path, text)
        assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert server.ask("POST", "/login", {"token": "tutti-0-guess"})[0] == 401
    assert server.ask("GET", "/", headers={"Host": "evil.example"})[0] == 421
    for site in ("cross-site", "same-site"):  # a page of another site cannot log in
        status, _, headers = server.ask("POST", "/login", {"token": valid},
                                        headers={"Sec-Fetch-Site": site})
        assert status == 403 and "Set-Cookie" not in headers, (site, status)
    assert server.ask("GET", "/nowhere")[0] == 404
    try:
        assert server.ask("POST", "/login", {"token": "x" * 300000})[0] == 413
    except ConnectionError:
        pass  # it did not listen to the end


def tenants(server, tokens, jobs, recipes):
    """Each sees his own project's jobs and can do nothing to the other's."""
    cookies = {user: server.log_in(token) for user, token in tokens.items()}
    pages = {user: server.ask("GET", "/", cookie=cookie)[1] for user, cookie in cookies.items()}
    assert EVIL not in "".join(pages.values())
    assert "&lt;script&gt;document.title" in pages["ada"], "the name of the job is shown"
    assert "beta" not in pages["ada"] and "alpha" not in pages["bob"]
    assert "bobs-job" in pages["olga"] and "&lt;script&gt;" in pages["olga"]
    for user in ("ada", "bob", "vic"):
        assert 'id="nodes"' not in pages[user] and 'id="audit"' not in pages[user], user
    assert 'id="nodes"' in pages["olga"] and 'id="audit"' in pages["olga"]
    assert 'action="/submit"' not in pages["vic"] and 'action="/steer"' not in pages["vic"]
    for user, token in tokens.items():
        assert all(token not in page for page in pages.values()), user

    # Each job has its buttons, for those who may press them.
    button = f'name="job" value="{jobs["ada"]}"'
    assert button in pages["ada"] and button in pages["olga"], "the job's buttons"
    assert button not in pages["bob"] and button not in pages["vic"]
    # Its first steps may be done before the controller looks at it again and calls it RUNNING.
    wait_for(lambda: '<span class="state busy">RUNNING</span>'
             in server.ask("GET", "/", cookie=cookies["ada"])[1], "RUNNING on its user's page")

    key = {user: re.search(r'name="form_key" value="([0-9a-f]+)"', page).group(1)
           for user, page in pages.items()}
    steer = {"what": "cancel", "job": str(jobs["ada"])}
    # Another user's, without the form's key, and with another session's key.
    status, text, _ = server.ask("POST", "/steer", {**steer, "form_key": key["bob"]}, cookies["bob"])
    assert status == 404 and "no job" in text, (status, text)
    status, _, _ = server.ask("POST", "/steer", {**steer, "form_key": key["vic"]}, cookies["vic"])
    assert status == 403, status
    for fields in (steer, {**steer, "form_key": key["bob"]}):
        assert server.ask("POST", "/steer", fields, cookies["ada"])[0] == 403
    form = {"recipe": "demo", "project": "alpha", "form_key": key["bob"], "confirmed": "yes",
            "key": "abc"}
    status, text, _ = server.ask("POST", "/submit", form, cookies["bob"])
    assert status == 403 and "may not submit" in text, (status, text[:500])
    form = {**form, "project": "beta", "recipe": "/etc/passwd"}
    status, text, _ = server.ask("POST", "/submit", form, cookies["bob"])
    assert status == 400 and "root:x:" not in text, status

    # Not even a forecast for another's project or for a viewer, and nothing is written for them; a
    # file where the server was started is not a recipe.
    form = {"text": "model: x", "form_key": key["bob"], "key": "abc"}
    for project in ("alpha", "nowhere"):
        status, text, _ = server.ask("POST", "/submit", {**form, "project": project}, cookies["bob"])
        assert status == 403 and "may not submit" in text, (project, status)
    form = {**form, "project": "alpha", "form_key": key["vic"]}
    assert server.ask("POST", "/submit", form, cookies["vic"])[0] == 403
    form = {"recipe": "secret", "project": "beta", "form_key": key["bob"], "key": "abc"}
    status, text, _ = server.ask("POST", "/submit", form, cookies["bob"])
    assert status == 400 and "sesame" not in text, status
    assert not [name for name in os.listdir(recipes) if name.startswith("page-")]
    # The live parts are those of the page.
    answers = {user: json.loads(server.ask("GET", "/sections", cookie=cookie)[1])
               for user, cookie in cookies.items()}
    live = {user: answer["sections"] for user, answer in answers.items()}
    running = {user: answer["tiles"][0] for user, answer in answers.items()}
    assert running["olga"] == ["2", "on 2 nodes"] and running["vic"] == ["1", "on 1 node"], running
    assert "nodes" in live["olga"] and "bobs-job" in live["olga"]["queue"]
    for user, other in (("ada", "beta"), ("vic", "beta"), ("bob", "alpha")):
        assert set(live[user]) == {"queue", "runs", "budgets", "incidents"}, live[user].keys()
        assert other not in json.dumps(live[user]), user
    assert EVIL not in "".join("".join(parts.values()) for parts in live.values())

    # What has not changed is not sent again.
    def same_again():
        tag = server.ask("GET", "/sections", cookie=cookies["bob"])[2]["ETag"]
        status, text, _ = server.ask("GET", "/sections", cookie=cookies["bob"], headers={"If-None-Match": tag})
        return status == 304 and not text
    wait_for(same_again, "an answer that nothing has changed")

    assert server.ask("GET", "/metrics", cookie=cookies["ada"])[0] == 403
    bearer = {"Authorization": "Bearer " + tokens["ada"]}
    assert server.ask("GET", "/metrics", headers=bearer)[0] == 403
    bearer = {"Authorization": "Bearer " + tokens["olga"]}
    status, text, headers = server.ask("GET", "/metrics", headers=bearer)
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in ("tutti_nodes{state=\"up\"} 1", "tutti_node_healthy{node=\"sick\"} 0",
                 "tutti_project_budget_usd{project=\"alpha\"} 10"):
        assert line in text, text
    assert text.endswith("\n")
    return cookies


def pushed(plane, server, cookie):
    """A request that may wait is answered once something changes, not at the next round of questions."""
    dollars = iter(range(20, 1000))

    def answered_by_the_change():
        tag = server.ask("GET", "/sections", cookie=cookie)[2]["ETag"]
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.ask, "GET", "/sections", None, cookie,
                                 {"If-None-Match": tag, "Prefer": "wait=20"})
            time.sleep(1)
            was_held = not answer.done()  # curves of the job may have grown meanwhile
            plane.call("admin", "project", "beta", "--usd", str(next(dollars)))
            changed = time.monotonic()
            status, text, _ = answer.result()
        soon = time.monotonic() - changed < 3
        return was_held and status == 200 and "budgets" in json.loads(text)["sections"] and soon
    wait_for(answered_by_the_change, "an answer when a budget changes")

    tag = server.ask("GET", "/sections", cookie=cookie)[2]["ETag"]
    begun = time.monotonic()
    server.ask("GET", "/sections", cookie=cookie, headers={"If-None-Match": tag, "Prefer": "wait=x"})
    assert time.monotonic() - begun < 20, "what cannot be read is not a preference"


def open_page(page, url, size, dark=False, scripts=True):
    page.open(url, *size, dark=dark, scripts=scripts)


def check_quiet(page):
    assert page.complaints() == [], page.complaints()
    assert page.value("document.title") != "owned"
    wide, screen = page.value("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= screen, f"{wide} pixels on a screen of {screen}"


def submitting(page, url):
    """Loads what a click leads to."""
    page.events.clear()

    def click(selector):
        page.value(f"document.querySelector({json.dumps(selector)}).click()")
        wait = time.monotonic() + 60
        while not any(e["method"] == "Page.loadEventFired" for e in page.events):
            assert time.monotonic() < wait, "nothing was loaded"
            time.sleep(0.05)
            try:
                page.value("1")
            except RuntimeError:
                pass  # between two pages
    return click


def in_the_browser(plane, server, tokens, jobs, recipe, pictures):
    with browser.Browser() as page:
        open_page(page, server.url, DESK)
        assert "Log in" in page.value("document.querySelector('h1').textContent")
        page.value(f"document.getElementById('token').value = {json.dumps(tokens['olga'])}")
        submitting(page, server.url)("form button")
        titles = page.value("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert titles[:6] == ["Queue", "Runs", "Nodes", "Budgets", "Incidents", "Audit log"], titles
        assert page.value("document.cookie") == "", "scripts can read the cookie"
        body = "document.body.textContent"
        assert "disk_fsync: slow" in page.value(body), "what is wrong with a node"

        # The curves move during the run, without a reload.
        curve = "document.querySelector('#live-runs figcaption p')?.textContent ?? ''"
        wait_for(lambda: "Step" in page.value(curve), "a curve")
        before = page.value(curve)
        wait_for(lambda: page.value(curve) != before, "a curve that moves")
        # What the reader presses works on the new drawing, and stays pressed.
        pressed = "document.querySelector('#live-runs button[data-toggle]').getAttribute('aria-pressed')"
        for _ in range(2):
            state = page.value(pressed)
            page.value("document.querySelector('#live-runs button[data-toggle]').click()")
            assert page.value(pressed) != state
            before, state = page.value(curve), page.value(pressed)
            wait_for(lambda: page.value(curve) != before, "the next curve")
            assert page.value(pressed) == state, state
        assert "Up to date" in page.value("document.getElementById('live-state').textContent")
        assert page.value("document.querySelectorAll('#live-runs svg path.line').length") >= 1
        assert "kWh" in page.value("document.querySelector('#live-budgets').textContent")
        assert page.value("document.querySelector('.tiles dd').textContent") == "2"
        assert page.value("document.querySelectorAll('#live-budgets .fill').length") >= 2

        for size, dark, name in ((DESK, False, "light"), (DESK, True, "dark"),
                                 (PHONE, False, "phone")):
            open_page(page, server.url, size, dark=dark)
            check_quiet(page)
            if pictures:
                page.screenshot(raw=True, save=os.path.join(pictures, f"serve-{name}.png"))
        open_page(page, server.url, DESK, scripts=False)
        assert "bobs-job" in page.value(body)

        # Another user, who submits the text of a recipe.
        open_page(page, server.url, DESK)
        submitting(page, server.url)("#session button")
        page.value(f"document.getElementById('token').value = {json.dumps(tokens['ada'])}")
        submitting(page, server.url)("form button")
        assert "bobs-job" not in page.value(body)
        with open(recipe) as file:
            text = file.read()
        page.value(f"document.getElementById('field-text').value = {json.dumps(text)}")
        page.value("document.getElementById('field-overrides').value = 'train.steps=20'")
        page.value("document.getElementById('field-name').value = 'from-the-page'")
        page.value("document.getElementById('field-cores').value = '1'")
        page.value("document.getElementById('field-project').value = 'alpha'")
        submitting(page, server.url)("#submit button")
        assert "Submit this?" in page.value(body), page.value(body)[:1000]
        assert "USD" in page.value(body)
        check_quiet(page)
        if pictures:
            page.screenshot(raw=True, save=os.path.join(pictures, "serve-confirm.png"))
        submitting(page, server.url)("form button")
        queue = page.value("document.querySelector('#live-queue').textContent")
        assert "from-the-page" in queue, page.value("document.querySelector('header').textContent")
        check_quiet(page)
    recipes = os.listdir(os.path.join(plane.folder, "control", "recipes"))
    assert not [name for name in recipes if name.startswith("page-")], recipes
    made = [j for j in plane.call("queue", "--all")["jobs"] if j["name"] == "from-the-page"]
    assert len(made) == 1 and made[0]["user"] == "ada" and made[0]["project"] == "alpha", made
    plane.call("cancel", str(jobs["ada"]))  # on two cores it would have to wait
    wait_for(lambda: plane.call("show", str(made[0]["job"]))["state"] == "COMPLETED", "the job")


def main():
    pictures = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        plane = ControlPlane(folder)
        recipe = small_run.prepare(folder)
        tokens = set_up(plane)
        health = os.path.join(folder, "control", "health")
        os.mkdir(health)
        with open(os.path.join(health, "sick.json"), "w") as file:
            json.dump({"healthy": False, "wall_seconds": time.time(), "kind": "mine", "checks": [
                {"name": "disk_fsync", "status": "fail", "detail": "slow"}]}, file)
        with open(os.path.join(folder, "secret"), "w") as file:
            file.write("sesame\n")
        controller = subprocess.Popen([TUTTI, "controller", "run"], cwd=folder,
                                      env=plane.environment, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        server = Server(plane)
        try:
            strangers(server, tokens["ada"])
            jobs = {"ada": submit(plane, recipe, tokens["ada"], "alpha", EVIL, "--cores", "1"),
                    "bob": submit(plane, recipe, tokens["bob"], "beta", "bobs-job", "--cores", "1")}
            for project in ("alpha", "beta"):
                run = os.path.join(folder, "run-" + project)
                wait_for(lambda: len(small_run.losses(run)) > 20, "steps of " + project)
            cookies = tenants(server, tokens, jobs,
                              os.path.join(folder, "control", "recipes"))
            pushed(plane, server, cookies["bob"])
            in_the_browser(plane, server, tokens, jobs, recipe, pictures)
            plane.call("admin", "token", "--withdraw", tokens["bob"].split("-")[1])
            assert server.ask("GET", "/", cookie=cookies["bob"])[0] == 401, "a withdrawn token"
        finally:
            for job in plane.call("queue")["jobs"]:
                plane.call("cancel", str(job["job"]))
            wait_for(lambda: not plane.call("queue")["jobs"], "the end of all jobs")
            code, log = server.close()
            controller.terminate()
            controller.wait(timeout=120)
        assert code in (0, 143), code
        verified = plane.call("audit", "verify")
        assert verified["intact"], verified
        with open(os.path.join(folder, "control", "audit.jsonl")) as file:
            denied = {(line["who"], line["what"]) for line in map(json.loads, file)
                      if not line["allowed"]}
        assert {("-", "login"), ("bob", "cancel"), ("bob", "submit"), ("vic", "cancel"),
                ("vic", "submit")} <= denied, denied
        for path in [os.path.join(root, name) for root, _, names in os.walk(folder)
                     for name in names]:
            with open(path, errors="replace") as file:
                text = file.read()
            assert not any(token in text for token in tokens.values()), path
        assert not any(token in log for token in tokens.values())
    print("the page shows what its reader may see, and does what he may do")


if __name__ == "__main__":
    sys.exit(main())
