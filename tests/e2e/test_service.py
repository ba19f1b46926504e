"""`chunkllama serve` as a service: what it reports to the service manager, from its start to its end."""
import json
import os
import re
import signal
import socket
import time

import pytest
import yaml
from conftest import ROOT

from test_drain import can_sandbox, get, read_line
from test_serve import endless, hold, read_hello, start  # noqa: F401 (hold and start are fixtures)
from waiting import LIMIT_S


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket as a service manager has it, and its name for NOTIFY_SOCKET."""
    name = f"@chunkllama-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
        messages.bind(name.replace("@", "\0"))
        messages.settimeout(LIMIT_S)
        yield messages, name


def next_message(messages):
    return dict(line.split("=", 1) for line in messages.recv(4096).decode().split("\n"))


def environment(name):
    return {**os.environ, "NOTIFY_SOCKET": name}


def test_a_service_reports_its_state(start, manager, tmp_path):
    """Also in the sandbox, in which no further socket can be made."""
    messages, name = manager
    sandbox = ["--sandbox"] * (name[0] == "/" and can_sandbox())
    server = start("--port", "0", "--shutdown-timeout", "100", *sandbox, log_level="info", env=environment(name))
    assert next_message(messages) == {"STATUS": "Loading the model"}
    assert next_message(messages) == {"READY": "1", "STATUS": "Serving requests"}
    url, _ = read_hello(server)
    assert get(url, "/readyz")[0] == 200

    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    server.send_signal(signal.SIGHUP)
    reloading = next_message(messages)
    assert begin <= int(reloading.pop("MONOTONIC_USEC")) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert reloading == {"RELOADING": "1", "STATUS": "Reading files again"}
    assert next_message(messages) == {"READY": "1", "STATUS": "Serving requests"}

    with endless(url):
        server.send_signal(signal.SIGTERM)
        stopping = next_message(messages)
        assert get(url, "/readyz")[0] == 503 and server.poll() is None
        assert 105e6 <= int(stopping.pop("EXTEND_TIMEOUT_USEC")) <= 200e6
        assert stopping == {"STOPPING": "1", "STATUS": "Waiting for requests to end: 1"}
        server.send_signal(signal.SIGHUP)  # does not make it ready again
        read_line(server, "SIGHUP")  # from before
        read_line(server, "SIGHUP")
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 128 + signal.SIGTERM
    messages.setblocking(False)
    with pytest.raises(BlockingIOError):
        messages.recv(1)


def test_a_service_that_loads_is_not_ready(start, manager, hold):
    """Loading never ends here, as its thread is held."""
    messages, name = manager
    with hold("pread", reached=False):
        server = start("--port", "0", hold=hold, env={**hold.env, "NOTIFY_SOCKET": name})
        hold.wait("pread")
        assert next_message(messages) == {"STATUS": "Loading the model"}
        server.terminate()
        assert server.wait(LIMIT_S) == 128 + signal.SIGTERM
    messages.setblocking(False)
    with pytest.raises(BlockingIOError):
        messages.recv(1)


def test_a_manager_that_is_gone_is_only_a_warning(start, tmp_path):
    server = start("--port", "0", log_level="warn", env=environment(str(tmp_path / "gone")))
    url, _ = read_hello(server)
    assert re.search(r'reason="No such file or directory" fix="unset NOTIFY_SOCKET', read_line(server, "service manager"))
    assert get(url, "/readyz")[0] == 200
    server.terminate()
    assert server.wait(LIMIT_S) == 0


def test_the_manifest_for_kubernetes(chunkllama):
    """What can be checked without a cluster: its options exist and are accepted, and what it repeats is what other files say."""
    service, pods = yaml.safe_load_all((ROOT / "packaging/kubernetes.yaml").read_text())
    assert (service["kind"], pods["kind"]) == ("Service", "StatefulSet")
    spec = pods["spec"]["template"]["spec"]
    [container] = spec["containers"]
    labels = pods["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels and pods["spec"]["selector"]["matchLabels"].items() <= labels
    # For a Service of this name Kubernetes would set CHUNKLLAMA_PORT.
    assert service["metadata"]["name"] == pods["spec"]["serviceName"] != "chunkllama"
    command, *options = container["args"]
    options = dict(option.removeprefix("--").split("=") for option in options)
    known = chunkllama(command, "--help").stdout
    assert command == "serve" and all(f"--{name} " in known for name in options)
    assert spec["terminationGracePeriodSeconds"] >= int(options["shutdown-timeout"]) + 5
    [port] = container["ports"]
    # The server does not see a limit of CPU time, and would start a thread for each CPU of the node.
    assert int(options["threads"]) == int(container["resources"]["limits"]["cpu"])
    assert int(options["port"]) == port["containerPort"] and service["spec"]["ports"][0]["targetPort"] == port["name"]
    described = json.loads((ROOT / "serve/http/openapi.json").read_text())["paths"]
    for probe, path in {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}.items():
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]} and path in described
    # The user is that of the image, which may write to its volume alone.
    assert f"USER {spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}\n" in (ROOT / "Containerfile").read_text()
    assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    volumes = {v["name"] for v in spec["volumes"]} | {v["metadata"]["name"] for v in pods["spec"]["volumeClaimTemplates"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(mounts) == volumes
    for name, volume in {"model": "models", "api-keys": "keys", "kv-tier": "state", "files-dir": "state"}.items():
        assert options[name].startswith(mounts[volume]["mountPath"] + "/")
        assert mounts[volume].get("readOnly", False) == (volume != "state")
