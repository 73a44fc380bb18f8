"""The job on Kafka Streams: `src` in Java, built when it is wanted."""
