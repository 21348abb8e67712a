// SPDX-License-Identifier: Apache-2.0
package dev.sidelane;

/**
 * Calls by which services report their requests exactly: three for each request.
 *
 * <pre>
 * Requests.receive(id);  // all of it has arrived   (any thread)
 * Requests.start(id);    // this thread starts it
 * Requests.finish(id);   // its response was sent   (any thread)
 * </pre>
 *
 * {@code id} is any number that no other request has at the same time. The calls are those of
 * runtime/c/sidelane.h, in libsidelane_emit.so beside the jar or in java.library.path. If that
 * library cannot be loaded they do nothing, and {@link #why} says what is missing: a service never
 * fails because Sidelane is missing.
 */
public final class Requests {
    private static final String MISSING =
            EmitLibrary.MISSING == null ? null : "requests are not emitted: " + EmitLibrary.MISSING;

    private Requests() {}

    /** Reports that all of the request has arrived. Any thread may call it. */
    public static void receive(long id) {
        if (MISSING == null) {
            received(id);
        }
    }

    /** Reports that this thread starts to work on the request. */
    public static void start(long id) {
        if (MISSING == null) {
            started(id);
        }
    }

    /** Reports that the request's response was sent. Any thread may call it. */
    public static void finish(long id) {
        if (MISSING == null) {
            finished(id);
        }
    }

    /** Returns the reason why the calls do nothing; null if they work. */
    public static String why() {
        return MISSING;
    }

    private static native void received(long id);

    private static native void started(long id);

    private static native void finished(long id);
}
