"""Kafka client settings in the words of the Java client, which Spark's sources are.

The settings of this project are librdkafka's; most names are the same, those of credentials are not.
"""

from collections.abc import Mapping

from feature_store.errors import FraudError

_SAME_VALUE = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class ClientSettingsError(FraudError):
    """Kafka client settings that the Java client has no words for."""


def java_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Settings for the Java client.

    Args:
        kafka: librdkafka's names.

    Raises:
        ClientSettingsError: a way to log in, or a file of keys, that Java is told of differently.
    """
    for name in ("ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"):
        if name in kafka:
            raise ClientSettingsError(
                f"FRAUD_KAFKA: {name} is a file that Java reads differently; give the text itself as "
                "ssl.certificate.pem and ssl.key.pem"
            )
    found = {_SAME_VALUE.get(name, name): value for name, value in kafka.items()}
    if (file := found.pop("ssl.ca.location", None)) is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": file}
    if any(name in found for name in ("ssl.truststore.certificates", "ssl.keystore.key")):
        found |= {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    user, password = found.pop("sasl.username", None), found.pop("sasl.password", None)
    if user is not None and "sasl.jaas.config" not in found:
        mechanism = found.get("sasl.mechanism", "")
        if mechanism not in _LOGIN_MODULES:
            raise ClientSettingsError(
                f"FRAUD_KAFKA: a user name needs sasl.mechanisms, one of {', '.join(_LOGIN_MODULES)}; "
                f"it is {mechanism or 'not given'}"
            )
        login = f"username={_quoted(user)} password={_quoted(password or '')}"
        found["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required {login};"
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
