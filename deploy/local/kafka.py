"""Kafka brokers in KRaft mode, configured for one machine: format, start, wait.

There is one broker, or three, which replicate each partition. Each is also a controller.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException

from deploy.local import jars, java, processes, topics
from deploy.local.console import Progress
from deploy.local.errors import StackError
from deploy.local.ports import HOST
from deploy.local.processes import Server
from deploy.local.state import BROKERS, Service, brokers_of
from streaming_job.contracts.topic import Component

PATIENCE_S = 120.0
LOGGING_FILE = Path(__file__).with_name("log4j2.properties")

PROPERTIES_FILE = Path(__file__).with_name("server.properties")

AUTHORISER = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
# the broker, the controller and clients of unguarded listeners do not log in: each is User:ANONYMOUS
super.users=User:ANONYMOUS
"""
"""Added to the properties if there is a guarded listener; its users may do only what ACLs allow."""

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "of-the-embedded-stack"
"""Password of each component's user. Not secret: it opens only the guarded listener, which tests use."""

HEAP = ("-Xms192m", "-Xmx512m", "-XX:+UseParallelGC", "-XX:MaxDirectMemorySize=256m")
HEAP_OF_THREE = ("-Xms128m", "-Xmx320m", "-XX:+UseParallelGC", "-XX:MaxDirectMemorySize=160m")
"""For each of three brokers."""


def start(data_dir: Path, ports: Mapping[str, int], progress: Progress, name: Service = "kafka") -> Server:
    """Start a broker on `data_dir`/`name`; format that directory first if it is new.

    Args:
        ports: those of all brokers.

    Raises:
        StackError: Java or Kafka's jars are missing, the directory cannot be formatted, or the broker cannot
            be started.
    """
    home = data_dir / name
    brokers = brokers_of(ports)
    replicas = len(brokers)
    home.mkdir(parents=True, exist_ok=True)
    properties = home / "server.properties"
    listeners, advertised = _listeners(ports, name)
    properties.write_text(
        (PROPERTIES_FILE.read_text() + (AUTHORISER if "guarded" in ports else "")).format(
            host=HOST,
            data=home / "data",
            listeners=listeners,
            advertised=advertised,
            controller=ports[controller(name)],
            node=_node(name),
            voters=",".join(f"{_node(each)}@{HOST}:{ports[controller(each)]}" for each in brokers),
            replicas=replicas,
            in_sync=2 if replicas > 2 else 1,
            login=LOGIN_MODULE,
            users=" ".join(f'user_{user}="{PASSWORD}"' for user in Component),
        )
    )
    class_path = jars.class_path("kafka", progress)
    if not (home / "data" / "meta.properties").exists():
        _format(properties, class_path, home)
    heap = HEAP if replicas == 1 else HEAP_OF_THREE
    return processes.spawn(
        [*java_command(heap, class_path, marker(data_dir, name)), "kafka.Kafka", str(properties)],
        marker=marker(data_dir, name), log=data_dir / "logs" / f"{name}.log", cwd=home, env=environment(),
    )  # fmt: skip


def controller(name: Service) -> str:
    """Return the name of the controller's port of a broker."""
    return name.replace("kafka", "controller")


def _node(name: Service) -> int:
    return 1 + BROKERS.index(name)


def _listeners(ports: Mapping[str, int], name: Service) -> tuple[str, str]:
    """Return the listeners for clients, and the addresses that the broker advertises for them."""
    listeners = advertised = f"PLAINTEXT://{HOST}:{ports[name]}"
    if "proxied" in ports:
        listeners += f",PROXIED://{HOST}:{ports['proxied']}"
        advertised += f",PROXIED://{HOST}:{ports['proxy']}"
    if "guarded" in ports:
        listeners += f",GUARDED://{HOST}:{ports['guarded']}"
        advertised += f",GUARDED://{HOST}:{ports['guarded']}"
    return listeners, advertised


def marker(data_dir: Path, name: Service = "kafka") -> str:
    """Return the argument that identifies this directory's broker among all processes."""
    return f"-Dcard-fraud.server={data_dir / name}"


def wait(data_dir: Path, server: Server, ports: Mapping[str, int], name: Service) -> None:
    """Wait until a broker answers a metadata request, and all brokers are registered."""
    client, count = topics.admin(f"{HOST}:{ports[name]}"), len(brokers_of(ports))

    def answers() -> bool:
        try:
            return len(client.list_topics(timeout=0.5).brokers) == count
        except KafkaException:
            return False

    log = data_dir / "logs" / f"{name}.log"
    processes.wait_until(answers, server=server, name=name, log=log, deadline_s=PATIENCE_S)


def bootstrap_servers(ports: Mapping[str, int]) -> str:
    """Return the addresses of all brokers for clients."""
    return ",".join(f"{HOST}:{ports[name]}" for name in brokers_of(ports))


def guarded(ports: Mapping[str, int]) -> tuple[str, dict[str, str]] | None:
    """Return the guarded listener's address and the settings to log in there as the job; None without one."""
    if "guarded" not in ports:
        return None
    return f"{HOST}:{ports['guarded']}", {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": Component.JOB.value,
        "sasl.password": PASSWORD,
    }


def java_command(heap: tuple[str, ...], class_path: str, marker: str) -> list[str]:
    """Build the Java command line up to the main class, the same for broker and Connect."""
    return [
        str(java.find().executable), *heap, "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData",
        "-Djava.net.preferIPv4Stack=true", f"-Dlog4j2.configurationFile={LOGGING_FILE}",
        "-Dlog4j2.disableJmx=true", marker, "-cp", class_path,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """Return this process's environment with at most two malloc arenas: a third would only cost memory."""
    return {**os.environ, "MALLOC_ARENA_MAX": "2"}


def _format(properties: Path, class_path: str, home: Path) -> None:
    heap = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    command = [
        *java_command(heap, class_path, "-Dcard-fraud.format"),
        "kafka.tools.StorageTool", "format", "--ignore-formatted", "--config", str(properties),
        # a fixed id, because this cluster is never connected to another
        "--cluster-id", "Y2FyZC1mcmF1ZC0wMDAwMQ",
    ]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, cwd=home, check=False)
    if answer.returncode != 0:
        reason = (answer.stdout + answer.stderr).strip().splitlines()[-1:] or ["no reason given"]
        raise StackError(
            f"cannot format {home} for Kafka ({reason[0]}): check the disk, or delete that directory"
        )
