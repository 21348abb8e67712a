// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

/** Place in the program where code is inserted: a method or a loop. */
final class Point {
    private final String method;
    private final String loop;

    private Point(String method, String loop) {
        this.method = method;
        this.loop = loop;
    }

    /** Returns the point of the method itself: its entry, and its exits if they are wanted. */
    static Point method(String method) {
        return new Point(method, null);
    }

    /** Returns the point of the loop that begins at that line; line 0: unknown. */
    static Point loop(String method, int line) {
        return new Point(method, line == 0 ? " loop" : " loop@line " + line);
    }

    /** Returns the name of the point in results: {@code package.Class.method loop@line 12}. */
    String name() {
        return loop == null ? method : method + loop;
    }
}
