package compare;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Computes features, score and rules of single transactions, without Kafka and state store. */
final class Decider {
    private static final JsonFactory JSON = new JsonFactory();

    final Transaction tx = new Transaction();
    final CardHistory card = new CardHistory();
    final double[] features = new double[Features.NAMES.size()];
    double score;
    private final Model model;
    private final Features calculator;
    private final List<String> rules = new ArrayList<>();

    Decider(Model model) {
        this.model = model;
        calculator = new Features(model.centroids);
    }

    /** Decides `tx` and adds it to `card`; returns false for a repetition, which changes nothing. */
    boolean decide(Profile profile) {
        long merchant = Transaction.hash(tx.merchantId);
        long id = Transaction.hash(tx.transactionId);
        short country = Transaction.countryCode(tx.country);
        if (card.has(tx, id, merchant, country)) {
            return false;
        }
        calculator.compute(tx, merchant, country, card, profile, features);
        card.accept(tx, id, merchant, country);
        score = model.score(features);
        rules.clear();
        if (score >= model.threshold) {
            rules.add("score");
        }
        if (Math.max(features[Features.COUNT_5M], features[Features.ARRIVALS_5M]) > model.maxCount5m) {
            rules.add("velocity_5m");
        }
        if (profile != null && profile.status() == Profile.BLOCKED) {
            rules.add("blocked_card");
        }
        if (profile != null && profile.status() == Profile.CLOSED) {
            rules.add("closed_card");
        }
        return true;
    }

    boolean alerts() {
        return !rules.isEmpty();
    }

    /** Returns the alert of the last decided transaction. */
    byte[] alert() throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream(3_000);
        boolean declined = rules.contains("blocked_card") || rules.contains("closed_card");
        try (JsonGenerator json = JSON.createGenerator(out)) {
            json.writeStartObject();
            json.writeStringField("transaction_id", tx.transactionId);
            json.writeStringField("card_id", tx.cardId);
            json.writeStringField("merchant_id", tx.merchantId);
            json.writeNumberField("amount", tx.units / Transaction.UNITS);
            json.writeStringField("country", tx.country);
            json.writeNumberField("event_time", tx.eventTime);
            json.writeNumberField("arrival_time", tx.arrival);
            json.writeStringField("decision", declined ? "decline" : "review");
            json.writeArrayFieldStart("rules");
            for (String rule : rules) {
                json.writeString(rule);
            }
            json.writeEndArray();
            json.writeNumberField("score", score);
            json.writeNumberField("threshold", model.threshold);
            writeFeatures(json);
            json.writeEndObject();
        }
        return out.toByteArray();
    }

    void writeFeatures(JsonGenerator json) throws IOException {
        json.writeObjectFieldStart("features");
        for (int i = 0; i < features.length; i++) {
            if (Double.isNaN(features[i])) {
                json.writeNullField(Features.NAMES.get(i));
            } else {
                json.writeNumberField(Features.NAMES.get(i), features[i]);
            }
        }
        json.writeEndObject();
    }
}
