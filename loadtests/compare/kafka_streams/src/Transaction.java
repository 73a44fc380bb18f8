package compare;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** A card transaction; one object is reused for all. */
final class Transaction {
    static final double UNITS = 10_000.0;
    private static final JsonFactory JSON = new JsonFactory();

    String transactionId;
    String cardId;
    String merchantId;
    String country;
    String currency;
    /** Amount, 1/10,000 of the currency unit. */
    long units;
    /** Event time, ms since 1970-01-01 UTC. */
    long eventTime;
    /** Kafka timestamp, ms since 1970-01-01 UTC. */
    long arrival;

    void read(byte[] value, long timestamp) throws IOException {
        arrival = timestamp;
        try (JsonParser parser = JSON.createParser(value)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                switch (name) {
                    case "transaction_id" -> transactionId = parser.getText();
                    case "card_id" -> cardId = parser.getText();
                    case "merchant_id" -> merchantId = parser.getText();
                    case "currency" -> currency = parser.getText();
                    case "country" -> country = parser.getText();
                    case "amount" -> units = (long) Math.rint(parser.getDoubleValue() * UNITS);
                    case "event_time" -> eventTime = parser.getLongValue();
                    default -> parser.skipChildren();
                }
            }
        }
    }

    /** Returns two letters as a number. */
    static short countryCode(String country) {
        return (short) ((country.charAt(0) - 'A') * 26 + country.charAt(1) - 'A');
    }

    /** Returns three letters as a number. */
    static short currencyCode(String currency) {
        return (short) (countryCode(currency) * 26 + currency.charAt(2) - 'A');
    }

    /** Returns FNV-1a over the characters, followed by the finaliser of MurmurHash3. */
    static long hash(String text) {
        long h = 0xcbf29ce484222325L;
        for (int i = 0; i < text.length(); i++) {
            h = (h ^ text.charAt(i)) * 0x100000001b3L;
        }
        h = (h ^ h >>> 33) * 0xff51afd7ed558ccdL;
        h = (h ^ h >>> 33) * 0xc4ceb9fe1a85ec53L;
        return h ^ h >>> 33;
    }
}
