"""The embedded stack: Kafka, Kafka Connect with Debezium, Postgres and MLflow on one machine."""
