// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

/** A place in the program where something is inserted. */
final class Point {
    private final String method;
    private final String loop;

    private Point(String method, String loop) {
        this.method = method;
        this.loop = loop;
    }

    /** The method itself: its entry, and its exits where they count. */
    static Point method(String method) {
        return new Point(method, null);
    }

    /** A turn of the loop that begins at that line; line 0: it is not known. */
    static Point loop(String method, int line) {
        return new Point(method, line == 0 ? " loop" : " loop@line " + line);
    }

    /** As it is shown: {@code package.Class.method loop@line 12}. */
    String name() {
        return loop == null ? method : method + loop;
    }
}
