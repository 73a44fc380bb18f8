"""What a job in the cluster needs: a model registry, brokers with TLS and permissions, secrets, volumes."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local import jars, kafka
from deploy.local.stack import Endpoints
from harness.containers import MlflowServer
from harness.kubernetes.certificates import Authority
from harness.kubernetes.cluster import ADDRESS, NODE, Cluster, Object
from harness.manifests import read
from loadtests.faults.acls import grant
from service.security import tokens
from service.security.roles import Role
from streaming_job.contracts.topic import Component
from streaming_job.permissions import needed
from streaming_job.settings import JobSettings

NAMESPACE = "card-fraud"
BROKERS = tuple(f"kafka-{number}.kafka.kafka.svc.cluster.local" for number in range(3))
ENDPOINTS = Endpoints("kafka.kafka.svc:9092", "", "", "http://mlflow.mlflow.svc:5000")
"""The brokers' listener without TLS, which is for the tests' own clients; the registry's."""
PRINCIPALS = {
    f"kafka-{component}": component
    for component in (Component.JOB, Component.SIDECAR, Component.ARCHIVE, Component.AUDIT)
}
"""Secret -> component whose user its certificate names."""
PROPERTIES = """\
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT
ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location=/tmp/own.pem
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka-tls/ca.crt
ssl.principal.mapping.rules=RULE:^CN=card-fraud-([a-z-]+)$/$1/,DEFAULT
super.users=User:ANONYMOUS;User:topics
"""
"""Of a broker, in addition to those of the embedded stack, some of which they replace."""


@contextmanager
def registry(cluster: Cluster) -> Iterator[None]:
    """Run a model registry on the node, which pods find by a service's name."""
    named = {"name": "mlflow", "namespace": "mlflow"}
    ports = [{"name": "http", "port": 5000}]
    cluster.apply(
        _namespace("mlflow"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": named,
            "spec": {"clusterIP": "None", "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**named, "labels": {"kubernetes.io/service-name": "mlflow"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
        },
    )
    with MlflowServer(cluster.directory / "mlflow", ADDRESS, 5000):
        yield


class Surroundings:
    """The namespaces `kafka` and `card-fraud`, all but the job."""

    def __init__(self, cluster: Cluster, java: str) -> None:
        """Create them, and wait until the brokers are ready.

        Args:
            java: image that has Java, for the brokers.
        """
        self._cluster, self._authority = cluster, Authority()
        self._files = Path(tempfile.mkdtemp(prefix="surroundings-", dir=cluster.directory))
        self._files.chmod(0o755)
        cluster.apply(_namespace("kafka"))
        self._brokers(java)
        self._secrets()

    def grant(self, settings: JobSettings) -> None:
        """Grant the permissions of each component that has a certificate."""
        for component in PRINCIPALS.values():
            grant(ENDPOINTS.bootstrap_servers, component, needed(component, settings))

    def volume(self, claim: str, mode: str) -> None:
        """Make an empty volume of this machine for a claim of the job's namespace.

        Args:
            mode: ReadWriteOnce or ReadWriteMany.
        """
        path = self._files / claim
        path.mkdir()
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
        self._cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": claim},
                "spec": {
                    "accessModes": [mode],
                    "capacity": {"storage": "100Gi"},
                    "claimRef": {"namespace": NAMESPACE, "name": claim},
                    "local": {"path": str(path)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
            }
        )

    def _brokers(self, java: str) -> None:
        listeners = "PLAINTEXT://{host}:9092,TLS://{host}:9093"
        settings = self._files / "server.properties"
        settings.write_text(
            (kafka.PROPERTIES_FILE.read_text() + kafka.AUTHORISER).format(
                host="", data="/data/kafka", node="@NODE@", controller=9094, replicas=3, in_sync=2,
                listeners=listeners.format(host=""), advertised=listeners.format(host="@HOST@"),
                voters=",".join(f"{number}@{host}:9094" for number, host in enumerate(BROKERS, 1)),
                login=kafka.LOGIN_MODULE, users="",
            )
            + PROPERTIES
        )  # fmt: skip
        certificate = self._authority.write(self._files / "kafka", "kafka", [*BROKERS, "kafka.kafka.svc"])
        self._create("secret", "generic", "kafka-tls", *_files(certificate), namespace="kafka")
        files = [f"--from-file={path}" for path in (settings, kafka.LOGGING_FILE)]
        self._create("configmap", "kafka", *files, namespace="kafka")
        service, brokers = read(Path(__file__).with_name("kafka.yaml"))
        pod = brokers["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        archives, inside = jars.cache_directory(), "/jars"
        container["image"] = java
        container["env"] = [
            {"name": "CLASS_PATH", "value": jars.class_path("kafka").replace(str(archives), inside)},
            {"name": "HEAP", "value": " ".join(kafka.HEAP_OF_THREE)},
        ]
        pod["volumes"][0]["hostPath"]["path"] = str(archives)
        self._cluster.apply(service, brokers)
        self._cluster.kubectl(
            "--namespace", "kafka", "rollout", "status", "statefulset/kafka", "--timeout", "300s"
        )

    def _secrets(self) -> None:
        """Create the job's namespace with the secrets that docs/deployment.md lists."""
        manifests = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base"
        self._cluster.kubectl("apply", "--filename", str(manifests / "namespace.yaml"))
        for secret, user in {**PRINCIPALS, "kafka-topics": "topics"}.items():
            certificate = self._authority.write(self._files / secret, f"card-fraud-{user}")
            self._create("secret", "generic", secret, *_files(certificate))
        hosts = ["sidecar", f"sidecar.{NAMESPACE}.svc"]
        certificate = self._authority.write(self._files / "sidecar-tls", "sidecar", hosts)
        self._create("secret", "generic", "sidecar-tls", *_files(certificate))
        file = self._files / "tokens.json"
        tokens.add(file, "tests", Role.ADMIN, "tests", int(time.time() * 1000))
        self._create("secret", "generic", "sidecar-tokens", f"--from-file={file}")

    def _create(self, *arguments: str, namespace: str = NAMESPACE) -> None:
        self._cluster.kubectl("--namespace", namespace, "create", *arguments)

    def close(self) -> None:
        """Remove the namespaces and volumes."""
        self._cluster.kubectl("delete", "namespace", NAMESPACE, "kafka")
        self._cluster.kubectl("delete", "persistentvolume", "--all")


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _files(directory: Path) -> list[str]:
    return [f"--from-file={directory / name}" for name in ("ca.crt", "tls.crt", "tls.key")]
