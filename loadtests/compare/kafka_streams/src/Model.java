package compare;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The exported model and policy (loadtests/compare/exported.py): gradient-boosted trees as flat arrays. */
final class Model {
    final double threshold;
    final int maxCount5m;
    final Map<String, double[]> centroids = new HashMap<>();
    private final double baseline;
    private final int[] roots;
    private final double[] thresholds;
    private final int[] columns;
    private final int[] kids;
    private final double[] values;
    /** Place in Features.NAMES of each of the model's columns. */
    private final int[] places;
    private final double[] row;

    Model(Path file) throws IOException {
        JsonNode root = new ObjectMapper().readTree(file.toFile());
        threshold = root.get("policy").get("threshold").asDouble();
        maxCount5m = root.get("policy").get("max_count_5m").asInt();
        root.get("centroids").properties().forEach(
            place -> centroids.put(place.getKey(), doubles(place.getValue())));
        JsonNode trees = root.get("trees");
        baseline = trees.get("baseline").asDouble();
        roots = ints(trees.get("roots"));
        thresholds = doubles(trees.get("thresholds"));
        columns = ints(trees.get("columns"));
        kids = ints(trees.get("kids"));
        values = doubles(trees.get("values"));
        JsonNode names = root.get("features");
        places = new int[names.size()];
        for (int i = 0; i < places.length; i++) {
            places[i] = Features.NAMES.indexOf(names.get(i).asText());
            if (places[i] < 0) {
                throw new IllegalArgumentException("the model asks for an unknown feature " + names.get(i));
            }
        }
        row = new double[2 * places.length];
    }

    /** Probability of fraud. A leaf is its own kid; the second copy of the columns is negated. */
    double score(double[] features) {
        int width = places.length;
        for (int i = 0; i < width; i++) {
            double value = features[places[i]];
            row[i] = value;
            row[width + i] = -value;
        }
        double sum = baseline;
        for (int root : roots) {
            int node = root;
            while (kids[node] != node) {
                node = kids[node] + (row[columns[node]] > thresholds[node] ? 1 : 0);
            }
            sum += values[node];
        }
        return 1.0 / (1.0 + Math.exp(-sum));
    }

    private static double[] doubles(JsonNode array) {
        double[] found = new double[array.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = array.get(i).asDouble();
        }
        return found;
    }

    private static int[] ints(JsonNode array) {
        int[] found = new int[array.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = array.get(i).asInt();
        }
        return found;
    }
}
