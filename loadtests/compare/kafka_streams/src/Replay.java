package compare;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * Makes the decisions of Main without Kafka, for tests. Argument: the model's file. Each line of the input is
 * {"arrival": ms, "transaction": {...}, "profile": envelope or null}; each line of the output has score, features
 * and whether it is an alert, or is null for a repetition.
 */
public final class Replay {
    private Replay() {}

    public static void main(String[] arguments) throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        Decider decider = new Decider(new Model(Path.of(arguments[0])));
        Map<String, byte[]> cards = new HashMap<>();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (JsonGenerator out = new JsonFactory().createGenerator(System.out)) {
            out.setRootValueSeparator(null);
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                JsonNode row = mapper.readTree(line);
                decider.tx.read(mapper.writeValueAsBytes(row.get("transaction")), row.get("arrival").asLong());
                decider.card.read(cards.get(decider.tx.cardId));
                JsonNode change = row.path("profile");
                Profile profile = change.isObject() ? Profile.ofChange(mapper.writeValueAsBytes(change)) : null;
                if (decider.decide(profile == null ? null : Profile.decode(profile.encode()))) {
                    cards.put(decider.tx.cardId, decider.card.write());
                    out.writeStartObject();
                    out.writeNumberField("score", decider.score);
                    out.writeBooleanField("alert", decider.alerts());
                    decider.writeFeatures(out);
                    out.writeEndObject();
                } else {
                    out.writeNull();
                }
                out.writeRaw('\n');
            }
        }
    }
}
