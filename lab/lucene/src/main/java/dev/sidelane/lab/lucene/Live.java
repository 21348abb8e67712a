// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

/** Objects that a collection has to look at, as those of a server's cache; requests may renew some of them. */
final class Live {
    private static final int BYTES = 48;
    /** A header, the length, and the reference to it. */
    private static final int BYTES_BESIDE = 24;

    private final Object[] objects;
    private final int renewed;
    private int next;

    /** Small objects of a given total size in MiB, of which each request renews a given number. */
    Live(int mebibytes, int renewed) {
        objects = new Object[(int) ((long) mebibytes * (1 << 20) / (BYTES + BYTES_BESIDE))];
        this.renewed = Math.min(renewed, objects.length);
        renew(objects.length);
    }

    /** How many there are. */
    int count() {
        return objects.length;
    }

    /** Replaces the oldest ones: what is new lives on, and collections of young objects have to copy it. */
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
