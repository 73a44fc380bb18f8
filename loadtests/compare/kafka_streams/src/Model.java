package compare;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The exported model and policy (loadtests/compare/exported.py): gradient-boosted trees as flat arrays. */
final class Model {
    /** Steps of a rounded score in 1. */
    private static final double STEPS = 1e9;
    final double threshold;
    final int maxCount5m;
    final Map<String, double[]> centroids = new HashMap<>();
    private final double baseline;
    private final int[] roots;
    private final double[] thresholds;
    private final int[] columns;
    private final int[] children;
    private final double[] values;
    /** Index in Features.NAMES of each of the model's columns. */
    private final int[] indices;
    private final double[] row;

    Model(Path file) throws IOException {
        JsonNode root = new ObjectMapper().readTree(file.toFile());
        threshold = root.get("policy").get("threshold").asDouble();
        maxCount5m = root.get("policy").get("max_count_5m").asInt();
        root.get("centroids").properties().forEach(
            entry -> centroids.put(entry.getKey(), doubles(entry.getValue())));
        JsonNode trees = root.get("trees");
        baseline = trees.get("baseline").asDouble();
        roots = ints(trees.get("roots"));
        thresholds = doubles(trees.get("thresholds"));
        columns = ints(trees.get("columns"));
        children = ints(trees.get("children"));
        values = doubles(trees.get("values"));
        JsonNode names = root.get("features");
        indices = new int[names.size()];
        for (int i = 0; i < indices.length; i++) {
            indices[i] = Features.NAMES.indexOf(names.get(i).asText());
            if (indices[i] < 0) {
                throw new IllegalArgumentException("the model needs an unknown feature " + names.get(i));
            }
        }
        row = new double[2 * indices.length];
    }

    /**
     * Returns the probability of fraud, rounded to 9 decimal places. A leaf is its own child. A missing value
     * (NaN) fails each comparison and so takes the first child. A split that sends it the other way has its
     * children swapped and tests the negated column, which is in the second half of the row.
     */
    double score(double[] features) {
        int width = indices.length;
        for (int i = 0; i < width; i++) {
            double value = features[indices[i]];
            row[i] = value;
            row[width + i] = -value;
        }
        double sum = baseline;
        for (int root : roots) {
            int node = root;
            while (children[node] != node) {
                node = children[node] + (row[columns[node]] > thresholds[node] ? 1 : 0);
            }
            sum += values[node];
        }
        return Math.rint(1.0 / (1.0 + Math.exp(-sum)) * STEPS) / STEPS;
    }

    private static double[] doubles(JsonNode array) {
        double[] numbers = new double[array.size()];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = array.get(i).asDouble();
        }
        return numbers;
    }

    private static int[] ints(JsonNode array) {
        int[] numbers = new int[array.size()];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = array.get(i).asInt();
        }
        return numbers;
    }
}
