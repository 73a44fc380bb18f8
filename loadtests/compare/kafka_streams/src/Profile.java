package compare;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;

/** A card's row in the bank's table. */
record Profile(byte status, short homeCountry, double creditLimit, int riskTier, int openedOn) {
    static final byte ACTIVE = 0;
    static final byte BLOCKED = 1;
    static final byte CLOSED = 2;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int SIZE = 1 + 2 + 8 + 4 + 4;

    /** Returns the row of a Debezium change event; null for a delete. */
    static Profile ofChange(byte[] envelope) throws IOException {
        JsonNode row = JSON.readTree(envelope).path("after");
        if (!row.isObject()) {
            return null;
        }
        String status = row.path("status").asText();
        return new Profile(
            status.equals("blocked") ? BLOCKED : status.equals("closed") ? CLOSED : ACTIVE,
            Transaction.countryCode(row.path("home_country").asText()),
            row.path("credit_limit").asDouble(),
            row.path("risk_tier").asInt(),
            row.path("opened_on").asInt());
    }

    /** Returns the card of a change event's key. */
    static String cardOf(byte[] key) throws IOException {
        return JSON.readTree(key).path("card_id").asText();
    }

    byte[] encode() {
        return ByteBuffer.allocate(SIZE)
            .put(status).putShort(homeCountry).putDouble(creditLimit).putInt(riskTier).putInt(openedOn)
            .array();
    }

    static Profile decode(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        ByteBuffer in = ByteBuffer.wrap(bytes);
        return new Profile(in.get(), in.getShort(), in.getDouble(), in.getInt(), in.getInt());
    }
}
