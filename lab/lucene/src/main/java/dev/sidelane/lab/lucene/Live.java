// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

/** Objects that a collection has to look at, as those of a server's cache. */
final class Live {
    private static final int BYTES = 48;
    /** A header, the length, and the reference to it. */
    private static final int BYTES_BESIDE = 24;

    private Live() {}

    /** Small objects of so many MiB together. */
    static Object[] objects(int mebibytes) {
        Object[] objects = new Object[(int) ((long) mebibytes * (1 << 20) / (BYTES + BYTES_BESIDE))];
        for (int number = 0; number < objects.length; number++) {
            objects[number] = new byte[BYTES];
        }
        return objects;
    }
}
