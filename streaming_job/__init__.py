"""The streaming job: reads transactions and tables from Kafka, decides, and writes alerts and progress."""
