// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

/** Replacement for java.lang.SidelaneCheck that counts checks. */
public final class CountingCheck {
    static final String NAME = "dev/sidelane/agent/CountingCheck";
    static long count;

    private CountingCheck() {}

    /** Returns a transformer that inserts calls of {@link #check}. */
    static PointTransformer transformer() {
        Options options = Options.parse("");
        return new PointTransformer(options, options.scope(), CheckClass.calls(NAME));
    }

    public static void check() {
        count++;
    }
}
