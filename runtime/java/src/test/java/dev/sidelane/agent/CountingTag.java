// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import java.util.ArrayList;
import java.util.List;

/** Replacement for java.lang.SidelaneTag that records the stored values in order. */
public final class CountingTag {
    static final String NAME = "dev/sidelane/agent/CountingTag";
    static final List<String> SEEN = new ArrayList<>();
    /**
     * Names of points. The point at index i has the number FIRST + i, so that some numbers exceed a
     * short.
     */
    private static final List<String> NAMES = new ArrayList<>();
    private static final int FIRST = Short.MAX_VALUE - 10;

    private CountingTag() {}

    public static void set(int id) {
        SEEN.add(NAMES.get(id - FIRST));
    }

    /** Returns a transformer that inserts calls of {@link #set}. */
    static PointTransformer transformer(String options) {
        Options parsed = Options.parse(options);
        return new PointTransformer(parsed, parsed.scopeOfTags(), TagClass.calls(NAME, CountingTag::id));
    }

    private static int id(Point point) {
        if (!NAMES.contains(point.name())) {
            NAMES.add(point.name());
        }
        return FIRST + NAMES.indexOf(point.name());
    }
}
