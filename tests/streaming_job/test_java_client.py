"""What librdkafka's settings are to the Java client."""

import pytest

from streaming_job.java_client import ClientSettingsError, java_settings

pytestmark = pytest.mark.unit


def test_what_both_clients_call_the_same_stays():
    settings = {"security.protocol": "SSL", "request.timeout.ms": "5000"}
    assert java_settings(settings) == settings


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_user_and_password_become_a_login_module(mechanism, module):
    found = java_settings({"sasl.mechanisms": mechanism, "sasl.username": "risk", "sasl.password": 'a"b\\c'})
    assert found == {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="risk" password="a\\"b\\\\c";',
    }


@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "GSSAPI"}])
def test_user_without_a_mechanism_that_takes_one_is_refused(mechanism):
    with pytest.raises(ClientSettingsError, match=r"sasl\.mechanisms, one of PLAIN"):
        java_settings({"sasl.username": "risk", "sasl.password": "x", **mechanism})


def test_authorities_are_a_trust_store():
    assert java_settings({"ssl.ca.location": "/etc/ca.pem"}) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
    }
    assert java_settings({"ssl.ca.pem": "CA", "ssl.certificate.pem": "C", "ssl.key.pem": "K"}) == {
        "ssl.truststore.type": "PEM",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.certificate.chain": "C",
        "ssl.keystore.key": "K",
    }


def test_files_of_keys_are_refused_with_what_to_give_instead():
    with pytest.raises(ClientSettingsError, match=r"ssl\.certificate\.pem and ssl\.key\.pem"):
        java_settings({"ssl.certificate.location": "c.pem", "ssl.key.location": "k.pem"})
