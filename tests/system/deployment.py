"""A SuperLink and SuperNodes on this machine, with TLS and keys, started and ended by their process ids."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from acclimate.flower.deploy import program, quiet

CONFIG = """\
[superlink]
default = "tls"

[superlink.tls]
address = "127.0.0.1:{port}"
root-certificates = "{folder}/ca.crt"
"""
PATIENCE = 120.0  # seconds for something to start or end


class Deployment:
    """Everything is in one folder; whatever was started is ended on leaving, children included."""

    def __init__(self, folder):
        self.folder, self.processes = Path(folder), {}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        (self.folder / "home").mkdir()
        (self.folder / "home" / "config.toml").write_text(CONFIG.format(port=self.port, folder=self.folder))
        beside = str(Path(sys.executable).parent)
        self.environment = {
            **quiet(),
            "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.folder / "home"),
            "ACCLIMATE_CACHE": str(self.folder / "cache"),
            "ACCLIMATE_RUNS": str(self.folder / "runs"),
            "ACCLIMATE_COMMIT_SECONDS": "0",
            "OMP_NUM_THREADS": "1",
        }

    def __enter__(self):
        self._certificates()
        self._start(
            "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key",
            "--enable-supernode-auth", "--database", "state.db", "--disable-runtime-dependency-installation",
        )  # fmt: skip
        wait_for(lambda: listens(self.port), "the SuperLink")
        return self

    def __exit__(self, *_):
        for name in list(self.processes):
            self.stop(name)

    def node(self, index, of, key=None, register=True, **config):
        """Start a SuperNode with a key of its own."""
        name = key or f"node{index}"
        if not (self.folder / name).exists():
            self.call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", name)
            if register:
                self.call(program("flwr"), "supernode", "register", f"{name}.pub", "tls")
        config = {"partition-id": index, "num-partitions": of, "folder": str(self.folder / f"of-{name}"), **config}
        told = " ".join(
            f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in config.items()
        )
        self._start(
            name, "flower-supernode", "--root-certificates", "ca.crt", "--superlink", f"127.0.0.1:{self.port}",
            "--auth-supernode-private-key", name, "--host", "127.0.0.1", "--port", str(free_port()),
            "--node-config", told,
        )  # fmt: skip
        return self.processes[name]

    def nodes(self, number, **config):
        for index in range(number):
            self.node(index, number, **config)
        for index in range(number):
            wait_for(lambda index=index: "SuperNode ID" in self.log(f"node{index}"), f"SuperNode {index}")

    def run(self, app, *config, timeout=900):
        """Run an app folder to its end: its exit code and what it printed."""
        done = subprocess.run(self.command(app, *config), **self.how(), capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stdout + done.stderr

    def begin(self, app, *config):
        """Start to run an app folder."""
        with (self.folder / "run.log").open("ab") as log:
            self.processes["run"] = subprocess.Popen(
                self.command(app, *config), **self.how(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        return self.processes["run"]

    def command(self, app, *config):
        options = [word for text in config for word in ("--config", text)]
        return [sys.executable, "-m", "acclimate", "flower", "run", str(app), "tls", *options]

    def how(self):
        return {"cwd": self.folder, "env": self.environment}

    def call(self, *words):
        done = subprocess.run(words, **self.how(), capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self, name, how=signal.SIGTERM):
        """End a process and all that it started."""
        process = self.processes.pop(name)
        family = [process.pid, *descendants(process.pid)]
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(20 if how == signal.SIGTERM else 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_all(family, patience=0)

    def _start(self, name, command, *words):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [program(command), *words], **self.how(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _certificates(self):
        (self.folder / "ext.cnf").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
        self.call(
            *new, "-x509", "-days", "30", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        self.call(*new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
        self.call(
            "openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "30", "-extfile", "ext.cnf",
        )  # fmt: skip


def end_all(pids, patience=20.0):
    """Wait for processes to end, and make those that do not."""
    end = time.monotonic() + patience
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.3)
    for pid in filter(is_alive, pids):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids)), "the end of processes")


def wait_for(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.3)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def listens(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def descendants(pid):
    """The children of a process, and theirs."""
    found = []
    for child in _children(pid):
        found += [child, *descendants(child)]
    return found


def called(pid, word):
    """Those among the descendants of a process whose command has a word."""
    return [child for child in descendants(pid) if word in _command(child)]


def _children(pid):
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
