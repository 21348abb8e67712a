// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

/** Live objects that a garbage collection must visit, as in a server's cache; requests may replace some of them. */
final class Live {
    private static final int BYTES = 48;
    /** Bytes that an object takes besides its content: header, array length, and the reference to the object. */
    private static final int BYTES_BESIDE = 24;

    private final Object[] objects;
    private final int renewed;
    private int next;

    /** Creates small objects of {@code mebibytes} MiB in all. Each request replaces {@code renewed} of them. */
    Live(int mebibytes, int renewed) {
        objects = new Object[(int) ((long) mebibytes * (1 << 20) / (BYTES + BYTES_BESIDE))];
        this.renewed = Math.min(renewed, objects.length);
        renew(objects.length);
    }

    /** Returns the number of live objects. */
    int count() {
        return objects.length;
    }

    /** Replaces the oldest objects. New objects stay alive, so collections of young objects have to copy them. */
    void renewSome() {
        if (renewed > 0) {
            renew(renewed);
        }
    }

    private synchronized void renew(int count) {
        for (int number = 0; number < count; number++) {
            objects[next] = new byte[BYTES];
            next = (next + 1) % objects.length;
        }
    }
}
