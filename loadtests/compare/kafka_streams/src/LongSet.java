package compare;

import java.util.Arrays;

/** A set of numbers with open addressing; reused for each transaction. */
final class LongSet {
    private long[] slots = new long[64];
    private boolean[] used = new boolean[64];
    private int size;

    int size() {
        return size;
    }

    void clear() {
        if (size > 0) {
            Arrays.fill(used, false);
            size = 0;
        }
    }

    void add(long value) {
        int slot = slotOf(value);
        if (used[slot]) {
            return;
        }
        used[slot] = true;
        slots[slot] = value;
        if (++size > slots.length / 2) {
            grow();
        }
    }

    private int slotOf(long value) {
        int mask = slots.length - 1;
        int slot = (int) (value * 0x9e3779b97f4a7c15L >>> 32) & mask;
        while (used[slot] && slots[slot] != value) {
            slot = slot + 1 & mask;
        }
        return slot;
    }

    private void grow() {
        long[] old = slots;
        boolean[] oldUsed = used;
        slots = new long[2 * old.length];
        used = new boolean[2 * old.length];
        for (int i = 0; i < old.length; i++) {
            if (oldUsed[i]) {
                int slot = slotOf(old[i]);
                used[slot] = true;
                slots[slot] = old[i];
            }
        }
    }
}
