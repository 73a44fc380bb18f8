"""The job on Kafka Streams: Java sources in `src`, compiled when needed."""
