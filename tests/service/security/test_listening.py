"""Addresses other than loopback need tokens, and TLS or `--insecure-http`."""

from pathlib import Path

import pytest
from certificates import certificate
from typer.testing import CliRunner

from deploy import cli
from service.security import listening
from service.security.listening import ListenError
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("host", "has", "text"),
    [
        ("127.0.0.1", "", None),
        ("localhost", "", None),
        ("::1", "", None),
        ("0.0.0.0", "", "no --tokens-file"),
        ("", "", "no --tokens-file"),
        ("::", "tls", "no --tokens-file"),
        ("0.0.0.0", "tokens", "--insecure-http"),
        ("10.0.0.7", "tokens", "--insecure-http"),
        ("no-such-host.invalid", "", "no --tokens-file"),
        ("0.0.0.0", "tokens insecure", None),
        ("0.0.0.0", "tokens tls", None),
        ("0.0.0.0", "insecure", "no --tokens-file"),
        ("127.0.0.1", "cert", "both"),
        ("127.0.0.1", "bad", "no TLS with"),
        ("127.0.0.1", "gone", "no TLS with"),
    ],
)
def test_allowed_addresses(host: str, has: str, text: str | None, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with_tls = {
        "tls": (cert, key),
        "cert": (cert, None),
        "bad": (cert, cert),
        "gone": (cert, tmp_path / "no"),
    }
    tls = next((with_tls[word] for word in has.split() if word in with_tls), (None, None))
    settings = ServiceSettings(
        bootstrap_servers="x",
        tokens_file=tmp_path / "tokens" if "tokens" in has else None,
        insecure_http="insecure" in has,
        tls_cert=tls[0],
        tls_key=tls[1],
    )
    if text is None:
        listening.check(host, settings)
    else:
        with pytest.raises(ListenError, match=text) as refused:
            listening.check(host, settings)
        assert "\n" not in str(refused.value)


def test_the_command_refuses_before_it_listens() -> None:
    fault = CliRunner().invoke(
        cli.app, ["serve", "--bootstrap-servers", "127.0.0.1:1", "--host", "0.0.0.0", "--port", "0"]
    )
    assert isinstance(fault.exception, ListenError)
