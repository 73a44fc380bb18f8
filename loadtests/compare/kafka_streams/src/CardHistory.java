package compare;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The accepted transactions of one card, by event time, and their running statistics. One object is reused for all
 * cards: filled from the bytes of the state store, or emptied.
 */
final class CardHistory {
    static final long DAY_MS = 86_400_000L;
    /** Length of the kept history: windows of 30 days, and 7 days of lateness. */
    static final long REMEMBER_MS = 37 * DAY_MS;
    /** How long a transaction id is remembered. */
    static final long REPEAT_MS = 7 * DAY_MS + 3_600_000L;
    private static final int HEAD = 8 + 3 * 8 + 8 + 4;
    private static final int EVENT = 5 * 8 + 2 * 2 + 1;

    /** Number of transactions accepted so far. */
    long count;
    double mean;
    /** Sum of the squared deviations from the mean. */
    double squares;
    double robustMean;
    /** Greatest arrival so far, ms; -1: none. */
    long arrival;
    int size;
    long[] times = new long[64];
    long[] units = new long[64];
    long[] arrivals = new long[64];
    long[] merchants = new long[64];
    long[] ids = new long[64];
    short[] countries = new short[64];
    short[] currencies = new short[64];
    boolean[] spikes = new boolean[64];

    void read(byte[] bytes) {
        if (bytes == null) {
            count = 0;
            mean = squares = robustMean = 0.0;
            arrival = -1;
            size = 0;
            return;
        }
        ByteBuffer in = ByteBuffer.wrap(bytes);
        count = in.getLong();
        mean = in.getDouble();
        squares = in.getDouble();
        robustMean = in.getDouble();
        arrival = in.getLong();
        size = in.getInt();
        makeRoom(size + 1);
        for (int i = 0; i < size; i++) {
            times[i] = in.getLong();
            units[i] = in.getLong();
            arrivals[i] = in.getLong();
            merchants[i] = in.getLong();
            ids[i] = in.getLong();
            countries[i] = in.getShort();
            currencies[i] = in.getShort();
            spikes[i] = in.get() != 0;
        }
    }

    byte[] write() {
        ByteBuffer out = ByteBuffer.allocate(HEAD + size * EVENT);
        out.putLong(count).putDouble(mean).putDouble(squares).putDouble(robustMean).putLong(arrival).putInt(size);
        for (int i = 0; i < size; i++) {
            out.putLong(times[i]).putLong(units[i]).putLong(arrivals[i]).putLong(merchants[i]).putLong(ids[i]);
            out.putShort(countries[i]).putShort(currencies[i]).put((byte) (spikes[i] ? 1 : 0));
        }
        return out.array();
    }

    /** Returns the index of the first event later than a time. */
    int after(long time) {
        int low = 0;
        int high = size;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (times[middle] <= time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    /** Returns whether a transaction repeats an accepted one: same id, same content. */
    boolean has(Transaction tx, long id, long merchant, short country) {
        short currency = Transaction.currencyCode(tx.currency);
        for (int i = after(Math.max(arrival, tx.arrival) - REPEAT_MS - 1); i < size; i++) {
            if (ids[i] == id && times[i] == tx.eventTime && units[i] == tx.units && merchants[i] == merchant
                && countries[i] == country && currencies[i] == currency) {
                return true;
            }
        }
        return false;
    }

    /** Inserts a transaction by event time. */
    void accept(Transaction tx, long id, long merchant, short country) {
        forgetBefore(Math.max(arrival, tx.arrival) - REMEMBER_MS);
        makeRoom(size + 1);
        int index = after(tx.eventTime);
        for (Object column : new Object[] {times, units, arrivals, merchants, ids, countries, currencies, spikes}) {
            System.arraycopy(column, index, column, index + 1, size - index);
        }
        size++;
        double amount = tx.units / Transaction.UNITS;
        arrival = Math.max(arrival, tx.arrival);
        times[index] = tx.eventTime;
        units[index] = tx.units;
        arrivals[index] = arrival;
        merchants[index] = merchant;
        ids[index] = id;
        countries[index] = country;
        currencies[index] = Transaction.currencyCode(tx.currency);
        spikes[index] = robustMean > 0 && amount / robustMean > 2.5;
        count++;
        double difference = amount - mean;
        mean += difference / count;
        squares += difference * (amount - mean);
        robustMean = robustMean == 0
            ? amount
            : robustMean + (Math.min(amount, 3 * robustMean) - robustMean) / Math.min(count, 64);
    }

    private void forgetBefore(long time) {
        int expired = after(time - 1);
        if (expired > 0) {
            for (Object column : new Object[] {times, units, arrivals, merchants, ids, countries, currencies, spikes}) {
                System.arraycopy(column, expired, column, 0, size - expired);
            }
            size -= expired;
        }
    }

    private void makeRoom(int needed) {
        if (needed <= times.length) {
            return;
        }
        int room = Math.max(needed, 2 * times.length);
        times = Arrays.copyOf(times, room);
        units = Arrays.copyOf(units, room);
        arrivals = Arrays.copyOf(arrivals, room);
        merchants = Arrays.copyOf(merchants, room);
        ids = Arrays.copyOf(ids, room);
        countries = Arrays.copyOf(countries, room);
        currencies = Arrays.copyOf(currencies, room);
        spikes = Arrays.copyOf(spikes, room);
    }
}
