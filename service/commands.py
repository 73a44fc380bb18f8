"""`fraud serve`: the sidecar in a process of its own."""

import errno
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from feature_store.errors import FraudError
from service.rollouts.options import Kafka, Servers

SHUTDOWN_S = 5


class ServiceError(FraudError):
    """The sidecar cannot listen on its host and port.

    Free the port, or give another `--host` or `--port`.
    """


def serve(
    bootstrap_servers: Servers,
    port: Annotated[int, typer.Option(help="0: any free port", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    job_id: Annotated[str, typer.Option(envvar="FRAUD_JOB_ID", help="The job to watch")] = "card-fraud",
    work_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="FRAUD_WORK_DIR",
            help="Local directory of the counts of alerts by their labels; without it, a restart counts anew "
            "what the topics still hold",
        ),
    ] = None,
    tokens_file: Annotated[
        Path | None,
        typer.Option(envvar="FRAUD_TOKENS_FILE", help="Tokens of the callers; made by `fraud tokens add`"),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar="FRAUD_TLS_CERT", help="Certificate and its chain, PEM")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="FRAUD_TLS_KEY", help="The certificate's private key, PEM")
    ] = None,
    insecure_http: Annotated[
        bool,
        typer.Option(
            envvar="FRAUD_INSECURE_HTTP",
            help="Listen beyond this machine without TLS, because a proxy terminates TLS",
        ),
    ] = False,
    max_progress_age: Annotated[
        float,
        typer.Option(
            envvar="FRAUD_MAX_PROGRESS_AGE_S",
            help="Not ready once transactions wait this many seconds for a key group that decides none, "
            "or once records wait as long for a producer to end its transaction",
        ),
    ] = 60.0,
    kafka: Kafka = "{}",
) -> None:
    """Serve health, metrics, rollouts, labels, precision and the status page until SIGTERM or Ctrl-C.

    Example: fraud serve --port 8000
    """
    import uvicorn

    from service import priority
    from service.app import create_app
    from service.security import audit_log, listening
    from service.settings import ServiceSettings
    from streaming_job import environment

    settings = environment.settings(
        ServiceSettings,
        bootstrap_servers=bootstrap_servers,
        job_id=job_id,
        work_dir=work_dir,
        max_progress_age_s=max_progress_age,
        kafka=environment.client_settings(kafka),
        tokens_file=tokens_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure_http=insecure_http,
    )
    listening.check(host, settings)
    audit_log.require_topics(settings)
    sidecar = create_app(settings)
    listener = _listen(host, port)
    priority.lower()
    server = uvicorn.Server(
        uvicorn.Config(
            sidecar,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
            proxy_headers=False,  # a client could forge its address
            server_header=False,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
        )
    )
    # after shutdown uvicorn raises once more the signal that stopped it: ignore that signal
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    url_host = f"[{host}]" if ":" in host else host
    scheme = "http" if tls_cert is None else "https"
    typer.echo(f"sidecar: {scheme}://{url_host}:{listener.getsockname()[1]}/")
    server.run(sockets=[listener])


app = typer.Typer(help="The sidecar: health, metrics, rollouts, labels, precision and the status page.")
app.command("serve")(serve)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(f"port {port} is taken; give another --port, or 0 for a free one") from error
        raise ServiceError(
            f"cannot listen on {host}:{port}: {error}; give another --host or --port"
        ) from error
