package compare;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The job on Kafka Streams. Arguments: the files of Kafka Streams' properties and of the model; the topics of
 * transactions, profiles and alerts.
 */
public final class Main {
    static final String CARDS = "cards";
    static final String PROFILES = "profiles";

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        Path model = Path.of(arguments[1]);
        StreamsBuilder builder = new StreamsBuilder();
        // a global store of the Processor API: every instance has all profiles
        builder.addGlobalStore(
            Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(PROFILES), Serdes.String(), Serdes.ByteArray()).withLoggingDisabled(),
            arguments[3],
            Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()),
            KeepProfiles::new);
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(CARDS), Serdes.String(), Serdes.ByteArray())
                .withCachingEnabled());
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .process(() -> new Decide(model), CARDS)
            .to(arguments[4], Produced.with(Serdes.String(), Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
        ended.await();
        if (streams.state() == KafkaStreams.State.ERROR) {
            System.exit(1);
        }
    }

    /** Applies Debezium's changes to the global table. */
    private static final class KeepProfiles implements Processor<byte[], byte[], Void, Void> {
        private KeyValueStore<String, byte[]> profiles;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            profiles = context.getStateStore(PROFILES);
        }

        @Override
        public void process(Record<byte[], byte[]> change) {
            try {
                Profile profile = change.value() == null ? null : Profile.ofChange(change.value());
                profiles.put(Profile.cardOf(change.key()), profile == null ? null : profile.encode());
            } catch (IOException malformed) {
                throw new UncheckedIOException(malformed);
            }
        }
    }

    /** Decides transactions and forwards alerts. */
    private static final class Decide implements Processor<String, byte[], String, byte[]> {
        private final Decider decider;
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> cards;
        private KeyValueStore<String, byte[]> profiles;

        Decide(Path model) {
            try {
                decider = new Decider(new Model(model));
            } catch (IOException unreadable) {
                throw new UncheckedIOException(unreadable);
            }
        }

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            this.context = context;
            cards = context.getStateStore(CARDS);
            profiles = context.getStateStore(PROFILES);
        }

        @Override
        public void process(Record<String, byte[]> record) {
            try {
                decider.tx.read(record.value(), record.timestamp());
                String cardId = decider.tx.cardId;
                decider.card.read(cards.get(cardId));
                if (!decider.decide(Profile.decode(profiles.get(cardId)))) {
                    return;
                }
                cards.put(cardId, decider.card.write());
                if (decider.alerts()) {
                    context.forward(record.withKey(cardId).withValue(decider.alert()));
                }
            } catch (IOException malformed) {
                throw new UncheckedIOException(malformed);
            }
        }
    }
}
