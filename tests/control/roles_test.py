"""Every role, in one project and in all, against every action, through the commands: what the table in
docs/control.md allows is done, all else is refused and in the audit log; tenants see nothing of each other."""

import json
import os
import subprocess
import sys
import tempfile

from control_plane import ControlPlane, TUTTI

ROLES = ["viewer", "submitter", "deployer", "operator", "admin"]


def least(role, scope="project"):
    """Who may: `role` and higher, with a role in the project, or only with one in all projects."""
    return lambda caller_role, caller_scope: (
        caller_role in ROLES and ROLES.index(caller_role) >= ROLES.index(role)
        and (scope == "project" or caller_scope == "*"))


def actions(job, own):
    """Name, words of the command, who may; `job` is another's, `own` the caller's."""
    return [
        ("see a job", ["show", job], least("viewer")),
        ("see why it waits", ["why", job], least("viewer")),
        ("see its log", ["logs", job], least("viewer")),
        ("see its cost", ["cost", job], least("viewer")),
        ("submit", ["submit", "recipe.yaml", "--yes", "--no-start", "--project", "vision"], least("submitter")),
        ("submit before others", ["submit", "recipe.yaml", "--yes", "--no-start", "--project", "vision", "--priority", "1"],
         least("operator")),
        ("hold one's own", ["hold", own], least("submitter")),
        ("hold another's", ["hold", job], least("operator")),
        ("release another's", ["release", job], least("operator")),
        ("read the audit log", ["audit", "show"], least("operator", "*")),
        ("drain a node", ["admin", "node", "NODE", "--drain"], least("operator", "*")),
        ("back up", ["controller", "backup", "backup.db"], least("operator", "*")),
        ("list users", ["admin", "list"], least("operator", "*")),
        ("set limits", ["admin", "project", "vision", "--max-jobs", "5"], least("admin")),
        ("give a role", ["admin", "grant", "someone", "viewer", "--project", "vision"], least("admin")),
        ("take a role", ["admin", "revoke", "someone", "--project", "vision"], least("admin")),
        ("make a user", ["admin", "user", "USER"], least("admin", "*")),
        ("disable a user", ["admin", "user", "someone", "--disable"], least("admin", "*")),
        ("enable a user", ["admin", "user", "someone", "--enable"], least("admin", "*")),
        ("change the site", ["admin", "site", "--usd-per-node-hour", "1"], least("admin", "*")),
        ("make another's token", ["admin", "token", "--user", "someone"], least("admin", "*")),
        ("cancel one's own", ["cancel", own], least("submitter")),
    ]


def attempt(plane, words, environment):
    done = subprocess.run([TUTTI, *words, "--json"], cwd=plane.folder, capture_output=True, text=True,
                          env=environment, check=False)
    if done.returncode == 0:
        return None
    error = json.loads(done.stdout)["error"]
    assert error["kind"] in ("permission", "not_found"), (words, error)
    return error


def matrix(plane, node):
    plane.call("admin", "node", node, "--drain")  # a controller that a command starts starts nothing
    job = str(plane.submit("--project", "vision"))
    cells = 0
    callers = [("none", "project")] + [(role, scope) for role in ROLES for scope in ("project", "*")]
    for number, (role, scope) in enumerate(callers):
        name = f"caller{number}"
        environment = plane.as_user(name, "" if role == "none" else "admin", "vision")
        own = str(plane.submit("--project", "vision", environment=environment)) if role != "none" else job
        if role != "none":
            plane.call("admin", "revoke", name, "--project", "vision")
            plane.call("admin", "grant", name, role, "--project", "*" if scope == "*" else "vision")
        for what, words, who_may in actions(job, own):
            words = [node if word == "NODE" else f"new{number}" if word == "USER" else word for word in words]
            error = attempt(plane, words, environment)
            expected = who_may(role, scope)
            assert (error is None) == expected, f"{role} of {scope}: {what}: {error or 'was allowed'}"
            if what == "see a job" and error:
                assert error["kind"] == "not_found", error
            cells += 1
    return cells


def main():
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(folder)
        plane.call("admin", "project", "vision")
        plane.call("admin", "user", "someone")
        node = os.uname().nodename  # the only one is this machine
        cells = matrix(plane, node)
        lines = plane.call("audit", "show", "--most", "100000")["lines"]
        denied = [line for line in lines if not line["allowed"]]
        assert denied and all(line["who"].startswith("caller") for line in denied), denied[:3]
        assert plane.call("audit", "verify")["intact"]
        plane.wait_for_no_controller()
    print(f"{cells} cells, {len(denied)} refusals, each in the audit log")


if __name__ == "__main__":
    sys.exit(main())
