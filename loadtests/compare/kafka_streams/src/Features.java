package compare;

import static compare.CardHistory.DAY_MS;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Every feature of feature_store/catalogue.py, exact, for one transaction at a time. */
final class Features {
    private static final long HOUR_MS = 3_600_000L;
    private static final String[] WINDOWS = {"1m", "5m", "1h", "24h", "7d", "30d"};
    private static final long[] LENGTHS = {60_000L, 300_000L, HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS};
    private static final int MONTH = 5;
    private static final int LATEST = 15;
    private static final String[] PER_WINDOW = {"count", "sum", "mean", "max", "merchants", "countries"};
    private static final String[] OTHERS = {
        "amount", "amount_tail", "hour_of_day", "is_night", "is_weekend", "lateness",
        "arrivals_1m", "arrivals_5m", "arrivals_1h",
        "time_since_previous", "count_all", "zscore_all", "std_30d", "ratio_mean_30d", "zscore_30d", "ratio_robust",
        "ratio_median", "spikes_1h", "spikes_24h", "spikes_7d", "spikes_30d", "time_since_spike",
        "new_merchant", "new_country", "travel_speed", "has_profile", "limit_use_24h", "account_age", "risk_tier",
        "away_from_home",
    };
    static final List<String> NAMES = names();
    static final int COUNT_5M = NAMES.indexOf("count_5m");
    static final int ARRIVALS_5M = NAMES.indexOf("arrivals_5m");
    private static final int SUM_24H = NAMES.indexOf("sum_24h");
    private static final short NOWHERE = Transaction.countryCode("ZZ");

    private final Map<Short, double[]> centroids = new TreeMap<>();
    private final LongSet merchants = new LongSet();
    private final LongSet countries = new LongSet();
    private int at;

    /** @param byCountry latitude and longitude in radians, by country. */
    Features(Map<String, double[]> byCountry) {
        byCountry.forEach((country, centroid) -> centroids.put(Transaction.countryCode(country), centroid));
    }

    private static List<String> names() {
        List<String> names = new ArrayList<>();
        for (String window : WINDOWS) {
            for (String stem : PER_WINDOW) {
                names.add(stem + "_" + window);
            }
        }
        names.addAll(Arrays.asList(OTHERS));
        return List.copyOf(names);
    }

    /** Fills `out` in the order of NAMES; the transaction is not yet in its card's history. */
    void compute(Transaction tx, long merchant, short country, CardHistory card, Profile profile, double[] out) {
        long t = tx.eventTime;
        int end = card.after(t);
        int start = card.after(t - LENGTHS[MONTH]);
        double amount = tx.units / Transaction.UNITS;
        at = 0;
        windows(tx, merchant, country, card, start, end, out);
        put(out, amount);
        put(out, Math.min(Math.max(Math.rint(amount), 150), 400));
        long hour = t / HOUR_MS % 24;
        put(out, hour);
        put(out, hour < 7);
        put(out, (t / DAY_MS + 3) % 7 >= 5);
        put(out, (tx.arrival - t) / 1000.0);
        arrivals(tx, card, out);
        put(out, start < end ? (t - card.times[end - 1]) / 1000.0 : Double.NaN);
        put(out, card.count);
        double deviation = Math.sqrt(card.squares / Math.max(card.count, 1));
        put(out, card.count < 2 || deviation == 0 ? Double.NaN : (amount - card.mean) / deviation);
        month(tx, card, start, end, out);
        put(out, card.robustMean == 0 ? Double.NaN : amount / card.robustMean);
        put(out, ratioToMedian(tx, card, start, end));
        spikes(t, card, start, end, out);
        novelty(merchant, country, card, start, end, out);
        put(out, start < end ? travelSpeed(t, country, card, end - 1) : Double.NaN);
        ofProfile(t, country, profile, out);
    }

    private void put(double[] out, double value) {
        out[at++] = value;
    }

    private void put(double[] out, boolean value) {
        out[at++] = value ? 1 : 0;
    }

    private void windows(
        Transaction tx, long merchant, short country, CardHistory card, int start, int end, double[] out) {
        long sum = tx.units;
        long most = tx.units;
        int count = 1;
        merchants.clear();
        countries.clear();
        merchants.add(merchant);
        countries.add(country);
        int next = end - 1;
        for (long length : LENGTHS) {
            for (; next >= start && card.times[next] > tx.eventTime - length; next--) {
                count++;
                sum += card.units[next];
                most = Math.max(most, card.units[next]);
                merchants.add(card.merchants[next]);
                countries.add(card.countries[next]);
            }
            put(out, count);
            put(out, sum / Transaction.UNITS);
            put(out, (double) sum / count / Transaction.UNITS);
            put(out, most / Transaction.UNITS);
            put(out, merchants.size());
            put(out, countries.size());
        }
    }

    private void arrivals(Transaction tx, CardHistory card, double[] out) {
        long now = Math.max(card.arrival, tx.arrival);
        int[] counts = {1, 1, 1};
        for (int i = card.after(now - CardHistory.REPEAT_MS - 1); i < card.size; i++) {
            for (int window = 0; window < counts.length; window++) {
                counts[window] += card.arrivals[i] > now - LENGTHS[window] ? 1 : 0;
            }
        }
        for (int count : counts) {
            put(out, count);
        }
    }

    private void month(Transaction tx, CardHistory card, int start, int end, double[] out) {
        int count = end - start;
        if (count == 0) {
            put(out, Double.NaN);
            put(out, Double.NaN);
            put(out, Double.NaN);
            return;
        }
        long sum = 0;
        for (int i = start; i < end; i++) {
            sum += card.units[i];
        }
        double mean = (double) sum / count;
        double squares = 0;
        for (int i = start; i < end; i++) {
            squares += (card.units[i] - mean) * (card.units[i] - mean);
        }
        double deviation = Math.sqrt(squares / count);
        put(out, deviation / Transaction.UNITS);
        put(out, sum == 0 ? Double.NaN : tx.units / mean);
        put(out, count < 2 || deviation == 0 ? Double.NaN : (tx.units - mean) / deviation);
    }

    private static double ratioToMedian(Transaction tx, CardHistory card, int start, int end) {
        long[] latest = Arrays.copyOfRange(card.units, Math.max(start, end - LATEST), end);
        if (latest.length == 0) {
            return Double.NaN;
        }
        Arrays.sort(latest);
        long median = latest[(latest.length - 1) / 2];
        return median == 0 ? Double.NaN : (double) tx.units / median;
    }

    private void spikes(long t, CardHistory card, int start, int end, double[] out) {
        int hour = 0;
        int day = 0;
        int week = 0;
        int month = 0;
        long latest = -1;
        for (int i = start; i < end; i++) {
            if (card.spikes[i]) {
                hour += card.times[i] > t - HOUR_MS ? 1 : 0;
                day += card.times[i] > t - DAY_MS ? 1 : 0;
                week += card.times[i] > t - 7 * DAY_MS ? 1 : 0;
                month++;
                latest = card.times[i];
            }
        }
        put(out, hour);
        put(out, day);
        put(out, week);
        put(out, month);
        put(out, month == 0 ? Double.NaN : (t - latest) / 1000.0);
    }

    private void novelty(long merchant, short country, CardHistory card, int start, int end, double[] out) {
        boolean newMerchant = true;
        boolean newCountry = true;
        for (int i = start; i < end; i++) {
            newMerchant &= card.merchants[i] != merchant;
            newCountry &= card.countries[i] != country;
        }
        put(out, newMerchant);
        put(out, newCountry);
    }

    private double travelSpeed(long t, short country, CardHistory card, int previous) {
        double hours = Math.max(t - card.times[previous], 1000) / (double) HOUR_MS;
        return kilometres(card.countries[previous], country) / hours;
    }

    private double kilometres(short a, short b) {
        if (a == NOWHERE || b == NOWHERE) {
            return Double.NaN;
        }
        if (a == b) {
            return 0;
        }
        double[] from = centroids.get(a);
        double[] to = centroids.get(b);
        if (from == null || to == null) {
            return Double.NaN;
        }
        double north = Math.sin((to[0] - from[0]) / 2);
        double east = Math.sin((to[1] - from[1]) / 2);
        double h = north * north + Math.cos(from[0]) * Math.cos(to[0]) * (east * east);
        return Math.rint(2 * 6371.0 * Math.asin(Math.min(1.0, Math.sqrt(h))) * 1000) / 1000;
    }

    private void ofProfile(long t, short country, Profile profile, double[] out) {
        put(out, profile != null);
        if (profile == null) {
            for (int i = 0; i < 4; i++) {
                put(out, Double.NaN);
            }
            return;
        }
        put(out, profile.creditLimit() == 0 ? Double.NaN : out[SUM_24H] / profile.creditLimit());
        put(out, t / DAY_MS - profile.openedOn());
        put(out, profile.riskTier());
        if (country == NOWHERE || profile.homeCountry() == NOWHERE) {
            put(out, Double.NaN);
        } else {
            put(out, country != profile.homeCountry());
        }
    }
}
