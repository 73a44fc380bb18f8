package compare;

import java.util.Arrays;

/** Distinct numbers, open addressing; emptied and filled again for each transaction. */
final class LongSet {
    private long[] slots = new long[64];
    private boolean[] taken = new boolean[64];
    private int size;

    int size() {
        return size;
    }

    void clear() {
        if (size > 0) {
            Arrays.fill(taken, false);
            size = 0;
        }
    }

    void add(long value) {
        int slot = place(value);
        if (taken[slot]) {
            return;
        }
        taken[slot] = true;
        slots[slot] = value;
        if (++size > slots.length / 2) {
            grow();
        }
    }

    private int place(long value) {
        int mask = slots.length - 1;
        int slot = (int) (value * 0x9e3779b97f4a7c15L >>> 32) & mask;
        while (taken[slot] && slots[slot] != value) {
            slot = slot + 1 & mask;
        }
        return slot;
    }

    private void grow() {
        long[] old = slots;
        boolean[] had = taken;
        slots = new long[2 * old.length];
        taken = new boolean[2 * old.length];
        for (int i = 0; i < old.length; i++) {
            if (had[i]) {
                int slot = place(old[i]);
                taken[slot] = true;
                slots[slot] = old[i];
            }
        }
    }
}
